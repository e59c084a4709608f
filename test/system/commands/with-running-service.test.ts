import assert from 'node:assert/strict';
import { copyFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { displayUrl } from '../../../src/database-url.ts';
import { engines } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { type Installation, newInstallation, TOGETHER } from '../../support/program.ts';
import { startPostgres } from '../../support/servers/postgres-server.ts';
import { bearer } from '../../support/service.ts';

const CONNECTIONS = 32;
const FERN = '{"id":7,"name":"Fern"}\n';

describe('commands while a service runs on the same store', TOGETHER, () => {
  for (const engine of engines) {
    it(`every command works, and the service sees its effect, on ${engine.name}`, async (t) => {
      const installation = await newInstallation(t);
      const { folder } = installation;
      const url = await engine.freshUrl(t);
      const env = { DATABASE_URL: url, NODE_ENV: 'production' };
      const service = await installation.serve({ env });
      const run = async (...args: readonly string[]): Promise<string> => {
        const { code, stdout, stderr } = await installation.run(args, { env });
        assert.equal(code, 0, `${args.join(' ')}: ${stderr}`);
        return stdout;
      };
      const list = async (secret: string): Promise<readonly [status: number, body: string]> => {
        const answer = await fetch(`${service.url}/plants`, { headers: bearer(secret) });
        return [answer.status, await answer.text()];
      };

      const secret = (await run('token', 'create', 'alice')).trim();
      assert.deepEqual(await list(secret), [200, '[]']);
      await writeFile(join(folder, 'plants.ndjson'), FERN);
      await run('import', 'alice', join(folder, 'plants.ndjson'));
      assert.deepEqual(await list(secret), [200, '[{"name":"Fern"}]']);
      assert.equal(await run('export', 'alice'), FERN);
      assert.equal(await run('migrate'), 'nothing to apply\n');
      assert.equal(await run('check'), 'sound: 1 plant, 1 token, 0 idempotency keys\n');
      assert.match(await run('copy', url, `sqlite:${join(folder, 'copy.db')}`), /1 plant\b/);
      // On PostgreSQL the command names pg_dump.
      if (engine.name === 'sqlite') await run('backup', join(folder, 'backup.db'));
      const [{ id }] = JSON.parse(await run('token', 'list', '--json'));
      await run('token', 'revoke', id);
      await until(async () => (await list(secret))[0] === 401);
      assert.equal((await service.stop()).code, 0);
    });
  }

  for (const engine of engines)
    it(`copy of a store in use → warns that later writes are missing; after a stop or a crash it does not, on ${engine.name}`, async (t) => {
      const installation = await newInstallation(t);
      const url = await engine.freshUrl(t);
      const env = { DATABASE_URL: url, NODE_ENV: 'production' };
      let copies = 0;
      const copy = async (): Promise<string> => {
        copies += 1;
        const target = `sqlite:${join(installation.folder, `copy-${copies}.db`)}`;
        const { code, stderr } = await installation.run(['copy', url, target]);
        assert.equal(code, 0, stderr);
        return stderr.replace(`created a new store at ${displayUrl(target)}\n`, '');
      };
      const warning = `plant-store: a service seems to use ${displayUrl(url)}; the copy lacks what it stores from now on. To move the store, stop the service, then copy\n`;
      const service = await installation.serve({ env });
      assert.deepEqual([await copy(), await copy()], [warning, warning]);
      assert.equal((await service.stop()).code, 0);
      assert.equal(await copy(), '');
      const killed = await installation.serve({ env });
      killed.kill('SIGKILL');
      await killed.ended;
      // PostgreSQL sees the end of the connections a moment later.
      await until(async () => (await copy()) === '');
    });

  it('copy of a store whose account may not see sessions → copies, without a warning', async (t) => {
    const installation = await newInstallation(t);
    const server = await startPostgres(['fsync = off']);
    t.after(() => server.remove());
    await server.sql('CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app');
    await server.sql('REVOKE SELECT ON pg_stat_activity FROM PUBLIC');
    const url = server.url().replace('postgres@', 'app@');
    assert.equal((await installation.run(['migrate', '--database-url', url])).code, 0);
    const target = join(installation.folder, 'copy.db');
    const { code, stderr } = await installation.run(['copy', url, `sqlite:${target}`]);
    assert.deepEqual([code, stderr], [0, `created a new store at ${target}\n`]);
  });

  it(`backup: of a service under the load of ${CONNECTIONS} connections has every write that was acknowledged before`, async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 20_000);
    // Before the first start, which would create one more token unless this one exists.
    const headers = { ...bearer(await installation.token('alice')), 'content-type': 'application/json' };
    const service = await installation.serve();
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
    // In this process, the command would leave the clients no time to write.
    const { code, stdout, stderr } = await installation.runProcess(['backup', file]);
    const during = acknowledged.length - before.length;
    isLoading = false;
    await load;
    assert.deepEqual(
      { code, stdout, stderr },
      { code: 0, stdout: '', stderr: `backup of ${installation.file} written to ${file} and checked\n` },
    );
    assert.ok(during > 0, 'the load continued during the backup');

    const restored = await newInstallation(t);
    await copyFile(file, restored.file);
    assert.match(await succeed(restored, 'check'), /^sound: \d+ plants, 1 token, 0 idempotency keys\n$/);
    const lines = new Set((await succeed(restored, 'export', 'alice')).split('\n'));
    for (const line of before) assert.ok(lines.has(line), line);
    assert.ok(lines.size > 20_000 + before.length);
    const again = await restored.serve();
    assert.equal((await fetch(`${again.url}/plants?limit=1`, { headers })).status, 200);
  });

  it('import: while a service writes to the same store → both succeed', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve();
    const headers = { ...bearer(await installation.token('alice')), 'content-type': 'application/json' };
    const file = join(installation.folder, 'plants.ndjson');
    await writeFile(file, lines(60_000));
    const importing = installation.runProcess(['import', 'alice', file]);
    let isImporting = true;
    void importing.finally(() => {
      isImporting = false;
    });
    let id = 0;
    async function client(): Promise<void> {
      while (isImporting) {
        id -= 1;
        const body = JSON.stringify({ id, name: 'from the service' });
        const response = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
        assert.equal(response.status, 200, await response.text());
      }
    }
    await Promise.all([importing, client(), client(), client()]);
    assert.deepEqual((await importing).stderr, '');
    assert.ok(id < 0);
    const listed: readonly unknown[] = JSON.parse(
      await (await fetch(`${service.url}/plants`, { headers })).text(),
    );
    assert.equal(listed.length, 60_000 - id);
  });

  it('token revoke: running service → rejects the token within a second and accepts others', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const secret = await installation.token('alice');
    const other = await installation.token('alice');
    const statusOf = async (token: string): Promise<number> => {
      const response = await fetch(`${service.url}/plants`, { headers: bearer(token) });
      await response.arrayBuffer();
      return response.status;
    };
    assert.equal(await statusOf(secret), 200);

    const [{ id } = {}] = await listTokens(installation);
    let revokedAt = Number.POSITIVE_INFINITY;
    const command = installation.run(['token', 'revoke', String(id)]).then((ended) => {
      revokedAt = performance.now();
      return ended;
    });
    // Repeated requests keep the token in the cache of the service.
    for (let asked = performance.now(); (await statusOf(secret)) === 200; asked = performance.now())
      assert.ok(asked - revokedAt < 1_000, 'the token is still valid');
    const { code, stdout } = await command;
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `revoked ${id} of alice\n` });
    assert.equal(await statusOf(secret), 401);
    assert.equal(await statusOf(other), 200);

    const states = (await listTokens(installation)).map(({ state }) => state);
    assert.deepEqual(states, ['revoked', 'valid']);
  });
});

async function importPlants(installation: Installation, count: number): Promise<void> {
  const file = join(installation.folder, 'before.ndjson');
  await writeFile(file, lines(count));
  await succeed(installation, 'import', 'alice', file);
}

async function succeed(installation: Installation, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await installation.run(args);
  assert.equal(code, 0, stderr);
  return stdout;
}

async function listTokens(installation: Installation): Promise<readonly Readonly<Record<string, unknown>>[]> {
  return JSON.parse(await succeed(installation, 'token', 'list', '--json'));
}

function lines(count: number, first = 1): string {
  return Array.from(
    { length: count },
    (_, index) => `{"id":${first + index},"name":"plant ${first + index}"}\n`,
  ).join('');
}
