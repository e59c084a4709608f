import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { engines } from '../../support/engines.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';
import { newInstallation, TOGETHER } from '../../support/program.ts';

describe('memory', TOGETHER, () => {
  for (const engine of engines) {
    it(`import, export, copy and check of 60 MB each fit into a heap of 48 MB on ${engine.name}`, async (t) => {
      const { folder, runProcess } = await newInstallation(t);
      const url = await engine.freshUrl(t);
      const file = (name: string): string => join(folder, name);
      const env = { DATABASE_URL: url, NODE_OPTIONS: '--max-old-space-size=48' };
      // V8 keeps a character of the Greek names in two bytes.
      const names = ['x'.repeat(16_000), 'φ'.repeat(8_000)];
      const long = Array.from({ length: 3_750 }, (_, id) => `{"id":${id},"name":"${names[id % 2]}"}\n`);
      await writeFile(file('plants.ndjson'), long);
      const other = `sqlite:${file('other.db')}`;
      for (const args of [
        ['import', 'alice', file('plants.ndjson')],
        ['export', 'alice', file('plants.csv')],
        ['copy', url, other],
        ['check'],
      ]) {
        const { code, stderr } = await runProcess(args, { env });
        assert.equal(code, 0, `${args[0]}: ${stderr}`);
      }
    });
  }

  it('import of a CSV cell with 30 MiB of line ends → takes less than 400 MiB', async (t) => {
    const { folder, runProcess } = await newInstallation(t);
    const file = join(folder, 'plants.csv');
    await writeFile(file, ['id,name,note\n1,Fern,"', '\n'.repeat(30 * MEBIBYTE), '"\n2,,\n']);
    // A heap limit does not hold: V8 allocates one large array far beyond it.
    const printPeak = "process.on('exit',()=>console.error('peak',process.resourceUsage().maxRSS))";
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${printPeak}` };
    const { code, stderr } = await runProcess(['import', 'alice', file], { env });
    assert.equal(code, 1, stderr);
    assert.match(stderr, new RegExp(`line ${30 * MEBIBYTE + 3}: the field .name. is required`));
    const [, kibibytes] = /^peak (\d+)$/m.exec(stderr) ?? [];
    assert.ok(Number(kibibytes) < 400 * 1_024, stderr);
  });
});
