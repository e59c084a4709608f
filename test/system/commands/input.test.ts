import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { assertFails, endOf, newInstallation, TOGETHER } from '../../support/program.ts';

/** Starts an import from a FIFO. Resolves when both ends are open. */
async function importFromFifo(t: TestContext) {
  const { folder, run, start } = await newInstallation(t);
  await run(['migrate']);
  const fifo = join(folder, 'plants.ndjson');
  execFileSync('mkfifo', [fifo]);
  const program = start(['import', 'alice', fifo]);
  const writer = await open(fifo, 'w');
  t.after(() => writer.close().catch(() => undefined));
  return { program, writer };
}

describe('import from a FIFO', TOGETHER, () => {
  it('fails while the writer keeps it open → ends', async (t) => {
    const { program, writer } = await importFromFifo(t);
    await writer.write('{"id":1,"name":"Alder"}\n'.repeat(2_000));
    assertFails(await endOf(program), /line 2: a plant with the id 1 already exists/);
  });

  it('more than fits into its buffers → all is imported', async (t) => {
    const { program, writer } = await importFromFifo(t);
    const plants = Array.from({ length: 100_000 }, (_, id) => `{"id":${id},"name":"plant ${id}"}\n`);
    await writer.writeFile(plants.join(''));
    await writer.close();
    const { code, stdout, stderr } = await endOf(program);
    assert.deepEqual(
      { code, stdout, stderr },
      { code: 0, stdout: '100000 plants of alice created\n', stderr: '' },
    );
  });
});

it('copy with settings from a pipe → reads it once', async (t) => {
  const { run, runProcess } = await newInstallation(t);
  await run(['migrate', '--database-url', 'sqlite:from.db']);
  const { code, stderr } = await runProcess(['copy', 'sqlite:from.db', 'sqlite:to.db'], {
    wrap: (program) => ['bash', '-c', 'DATABASE_URL_FILE=<(echo sqlite:x.db) exec "$@"', 'bash', ...program],
  });
  assert.equal(code, 0, stderr);
});
