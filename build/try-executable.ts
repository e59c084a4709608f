import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import manifest from '../package.json' with { type: 'json' };

/**
 * Runs a built program without Node in its PATH: the service with its three operations, and the commands on its store. Fails
 * with exit code 1. For the systems on which the tests are not run.
 *
 *     node build/try-executable.ts dist/plant-store
 */

const [program = '', ...args] = process.argv.slice(2);
const path = resolve(program);
const folder = mkdtempSync(join(tmpdir(), 'plant-store-'));
// Windows needs these variables for sockets and temporary files.
const { SystemRoot = '', TEMP = '' } = process.env;
const options = { cwd: folder, env: { PATH: '', SystemRoot, TEMP } };
const run = (...more: readonly string[]) =>
  execFileSync(path, [...args, ...more], { ...options, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

try {
  assert.equal(run('--version'), `${manifest.version}\n`);
  const authorization = `Bearer ${run('token', 'create', 'alice').trim()}`;
  const service = spawn(path, [...args, 'serve', '--port', '0', '--admin-port', '0'], {
    ...options,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = new Promise<number | null>((done) => service.once('exit', done));
  try {
    const log = createInterface(service.stdout);
    const url = await new Promise<string>((done, fail) => {
      log.on('line', (line) => {
        const { msg, url: found } = JSON.parse(line);
        if (msg === 'serving') done(found);
      });
      log.once('close', () => fail(new Error('the service ended before it served')));
    });
    await requestAll(url, authorization);
    writeFileSync(join(folder, 'in.csv'), 'id,name,tag\n1,Alder,Alnus\n2,Birch,\n');
    run('import', 'alice', 'in.csv');
    run('export', 'alice', 'out.ndjson');
    run('backup', 'backup.db');
    assert.throws(() => run('backup', 'backup.db'), /already exists/);
    run('check');
    run('copy', 'sqlite:backup.db', 'sqlite:copy.db');
  } finally {
    // Windows has no signals: there it ends the process.
    service.kill();
  }
  const code = await exit;
  if (process.platform !== 'win32') assert.equal(code, 0);
  assert.match(run('check'), /^sound: 2 plants, 1 token,/);
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Creates a plant with the largest id, lists it and deletes it. */
async function requestAll(url: string, authorization: string): Promise<void> {
  const id = '9223372036854775807';
  const headers = { authorization, 'content-type': 'application/json' };
  const created = await fetch(`${url}/plants`, {
    method: 'POST',
    headers,
    body: `{"id":${id},"name":"Oak"}`,
  });
  assert.deepEqual([created.status, await created.text()], [200, '{"name":"Oak"}']);
  const list = await fetch(`${url}/plants`, { headers });
  assert.deepEqual([list.status, await list.text()], [200, '[{"name":"Oak"}]']);
  const deleted = await fetch(`${url}/plants/${id}`, { method: 'DELETE', headers });
  assert.equal(deleted.status, 204);
}
