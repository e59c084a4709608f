import assert from 'node:assert/strict';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ndjson } from '../../src/formats/ndjson.ts';
import { damagePage } from '../support/faults/damaged-file.ts';
import { type Installation, newInstallation, ON_A_TERMINAL, TOGETHER } from '../support/program.ts';
import { bearer } from '../support/service.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));
const CONNECTIONS = 32;

async function succeed(installation: Installation, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await installation.run(args);
  assert.equal(code, 0, stderr);
  return stdout;
}

async function importPlants(installation: Installation, count: number): Promise<void> {
  const plants = Array.from({ length: count }, (_, id) => ({ id: BigInt(id), name: `plant ${id}` }));
  const file = join(installation.folder, 'before.ndjson');
  await writeFile(file, ndjson.write(plants));
  await succeed(installation, 'import', 'alice', file);
}

describe('backup', TOGETHER, () => {
  it(`of a service under the load of ${CONNECTIONS} connections has every write that was acknowledged before`, async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 20_000);
    const service = await installation.serve();
    const headers = { ...bearer(await installation.token('alice')), 'content-type': 'application/json' };
    const acknowledged: string[] = [];
    let next = 1_000_000;
    let isLoading = true;

    async function client(): Promise<void> {
      while (isLoading) {
        next += 1;
        const body = JSON.stringify({ id: next, name: `written ${next}` });
        const response = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
        assert.equal(response.status, 200, await response.text());
        acknowledged.push(body);
      }
    }

    const load = Promise.all(Array.from({ length: CONNECTIONS }, client));
    while (acknowledged.length < 500) await fetch(`${service.adminUrl}/ready`);
    const before = [...acknowledged];
    const file = join(installation.folder, 'backup.db');
    const { code, stdout, stderr } = await installation.run(['backup', file]);
    const during = acknowledged.length - before.length;
    isLoading = false;
    await load;
    assert.deepEqual(
      { code, stdout, stderr },
      { code: 0, stdout: '', stderr: `backup written to ${file} and checked\n` },
    );
    assert.ok(during > 0, 'the load continued during the backup');

    const restored = await newInstallation(t);
    await copyFile(file, restored.file);
    assert.match(await succeed(restored, 'check'), /^sound: \d+ plants, 2 tokens, 0 idempotency keys\n$/);
    const lines = new Set((await succeed(restored, 'export', 'alice')).split('\n'));
    for (const line of before) assert.ok(lines.has(line), line);
    assert.ok(lines.size > 20_000 + before.length);
    const again = await restored.serve();
    assert.equal((await fetch(`${again.url}/plants?limit=1`, { headers })).status, 200);
  });

  it('creates one file with mode 0600, without other files; an existing file is not overwritten', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'import', 'alice', EXAMPLE);
    const file = join(installation.folder, 'backup.db');
    await succeed(installation, 'backup', file);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(
      readdirSync(installation.folder).filter((name) => name.startsWith('backup')),
      ['backup.db'],
    );
    const before = await readFile(file);
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /backup\.db already exists; choose another name/);
    const nameless = await installation.run(['backup', '']);
    assert.equal(nameless.code, 1);
    assert.match(nameless.stderr, /argument 'file'.*must name a file/);
    assert.ok((await readFile(file)).equals(before));
  });

  it('damaged store → fails and leaves no backup file', async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 5_000);
    await damagePage(installation.file);
    const file = join(installation.folder, 'backup.db');
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /damaged|malformed/);
    assert.equal(existsSync(file), false);
    assert.equal(existsSync(`${file}.partial`), false);
  });

  it('unfinished file of another run → fails, names the remedy and keeps the file', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'migrate');
    const file = join(installation.folder, 'backup.db');
    await writeFile(`${file}.partial`, 'half');
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /backup\.db\.partial.*remove it/);
    assert.equal(await readFile(`${file}.partial`, 'utf8'), 'half');
  });

  it('missing store → none is created; PostgreSQL → names pg_dump, without the password', async (t) => {
    const installation = await newInstallation(t);
    const missing = await installation.run(['backup', join(installation.folder, 'backup.db')]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /there is no store at/);
    assert.deepEqual(readdirSync(installation.folder), []);
    const { code, stderr } = await installation.run(['backup', 'plants.dump'], {
      env: { DATABASE_URL: 'postgres://me:secret@localhost/plants' },
    });
    assert.equal(code, 1);
    assert.match(
      stderr,
      /pg_dump --format=custom --file=plants\.dump 'postgres:\/\/me:\*\*\*@localhost\/plants'/,
    );
  });

  it('store cannot be opened → same message as other commands', async (t) => {
    const installation = await newInstallation(t);
    const env = { DATABASE_URL: `sqlite:${installation.folder}` };
    const { code, stderr } = await installation.run(['backup', join(installation.folder, 'x')], { env });
    const { stderr: ofCheck } = await installation.run(['check'], { env });
    assert.match(stderr, /^plant-store: cannot open the store .*unable to open database file.*\n$/);
    assert.deepEqual([code, stderr], [1, ofCheck]);
  });

  it('no space for the copy → says that it cannot be written and leaves no file', async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 20_000);
    const file = join(installation.folder, 'backup.db');
    const wrap = (command: readonly string[]) => [
      'bash',
      '-c',
      'ulimit -S -f 256 && exec "$@"',
      'bash',
      ...command,
    ];
    const { code, stderr } = await installation.run(['backup', file], { wrap });
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: the store cannot be copied to .*backup\.db\.partial: .*\n$/);
    assert.deepEqual([existsSync(file), existsSync(`${file}.partial`)], [false, false]);
  });

  it('on a terminal → shows the progress', async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 60_000);
    const file = join(installation.folder, 'backup.db');
    const { code, stderr } = await installation.run(['backup', file], { env: ON_A_TERMINAL });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /\[=*-*\] \d+% \| .* pages/);
  });
});
