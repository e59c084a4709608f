import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { PASSWORD, urlsWithPassword } from '../../support/data/urls-with-password.ts';
import { newInstallation, TOGETHER } from '../../support/program.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import { bearer } from '../../support/service.ts';

describe('a password in the database URL of serve', TOGETHER, () => {
  for (const [name, url] of urlsWithPassword) {
    it(`failing start does not print it: ${name}`, async (t) => {
      const installation = await newInstallation(t);
      const env = { DATABASE_URL: url, LOG_LEVEL: 'trace', PORT: '0', ADMIN_PORT: '0' };
      const { code, stdout, stderr } = await installation.runProcess(['serve'], { env });
      assert.equal(code, 1);
      assert.notEqual(stderr, '');
      assert.ok(!(stdout + stderr).includes(PASSWORD), stdout + stderr);
    });
  }

  it('given as a flag → not in the process list', async (t) => {
    const installation = await newInstallation(t);
    const silent = createServer();
    t.after(() => silent.close());
    const url = `postgres://u:${PASSWORD}@127.0.0.1:${await listenOnFreePort(silent)}/plants`;
    const program = installation.start(['serve', '--port', '0', '--admin-port', '0', '--database-url', url]);
    const [socket] = await once(silent, 'connection');
    if (process.platform === 'linux') {
      const shown = await readFile(`/proc/${program.pid}/cmdline`, 'latin1');
      assert.match(shown, /^plant-store/);
      assert.ok(!shown.includes(PASSWORD), shown);
    }
    socket.destroy();
    program.kill('SIGKILL');
    await program.ended;
  });
});

it('all created files → readable by their owner only, with any umask', async (t) => {
  const installation = await newInstallation(t);
  const file = join(installation.folder, 'new', 'data', 'plants.db');
  const env = { NODE_ENV: 'production', DATABASE_URL: `sqlite:${file}` };
  const script = 'umask 000 && unset NODE_COMPILE_CACHE && exec "$@"';
  const wrap = (command: readonly string[]) => ['bash', '-c', script, 'bash', ...command];
  const token = (await installation.runProcess(['token', 'create', 'alice'], { env, wrap })).stdout.trim();
  const service = await installation.serve({ env, wrap });
  const headers = { ...bearer(token), 'content-type': 'application/json' };
  const body = '{"id":1,"name":"Alder"}';
  assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
  const backup = join(installation.folder, 'backup.db');
  assert.equal((await installation.runProcess(['backup', backup], { env, wrap })).code, 0);
  const exported = join(installation.folder, 'plants.ndjson');
  assert.equal((await installation.runProcess(['export', 'alice', exported], { env, wrap })).code, 0);
  const made = await readdir(installation.folder, { recursive: true });
  for (const name of ['new/data/plants.db-wal', 'new/data/plants.db-shm', '.cache/plant-store'])
    assert.ok(made.includes(name), `${name} is not in ${made}`);
  for (const name of made) {
    const { mode } = await stat(join(installation.folder, name));
    assert.equal(mode & 0o077, 0, `${name}: ${mode.toString(8)}`);
  }
});
