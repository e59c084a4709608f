import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { engines } from '../../support/engines.ts';
import { newInstallation, TOGETHER } from '../../support/program.ts';

describe('memory', TOGETHER, () => {
  for (const engine of engines) {
    it(`import, export, copy and check of 60 MB each fit into a heap of 48 MB on ${engine.name}`, async (t) => {
      const { folder, runProcess } = await newInstallation(t);
      const url = await engine.freshUrl(t);
      const file = (name: string): string => join(folder, name);
      const env = { DATABASE_URL: url, NODE_OPTIONS: '--max-old-space-size=48' };
      const long = Array.from({ length: 3_750 }, (_, id) => `{"id":${id},"name":"${'x'.repeat(16_000)}"}\n`);
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
});
