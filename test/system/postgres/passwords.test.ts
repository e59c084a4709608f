import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { assertFails, newInstallation } from '../../support/program.ts';
import { type PostgresServer, startPostgres } from '../../support/servers/postgres-server.ts';
import { startService } from '../../support/service.ts';

test('command without the required password → error at once', async (t) => {
  const server = await startPostgres();
  t.after(() => server.remove());
  await server.sql("CREATE ROLE app LOGIN PASSWORD 'right'");
  await writeFile(
    join(server.folder, 'pg_hba.conf'),
    'local all all trust\nhost all all all scram-sha-256\n',
  );
  await reload(server);
  const { run } = await newInstallation(t);
  const url = new URL(server.url());
  url.username = 'app';

  const ended = await run(['token', 'list', '--database-url', url.href]);
  assertFails(ended, /the server asks for a password, and the database URL has none/);
});

test('URL without a user → error that names PGUSER', async (t) => {
  const server = await startPostgres();
  t.after(() => server.remove());
  const { runProcess } = await newInstallation(t);
  const url = new URL(server.url());
  url.username = '';

  const ended = await runProcess(['token', 'list', '--database-url', url.href]);
  assertFails(ended, /the database URL names no user, and PGUSER is not set/);
});

test('password changed while the service runs → 503 until it is correct again', async (t) => {
  const server = await startPostgres();
  t.after(() => server.remove());
  await server.sql("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'first'");
  const rules = 'local all all trust\nhost all postgres all trust\nhost all app all scram-sha-256\n';
  await writeFile(join(server.folder, 'pg_hba.conf'), rules);
  await reload(server);
  const url = new URL(server.url());
  url.username = 'app';
  url.password = 'first';
  const service = await startService(t, url.href);
  const headers = { authorization: `Bearer ${await service.token()}`, 'content-type': 'application/json' };
  const create = (): Promise<Response> =>
    fetch(`${service.url}/plants`, { method: 'POST', headers, body: '{"id":1,"name":"Alder"}' });

  await server.sql("ALTER ROLE app PASSWORD 'second'");
  await server.sql(
    `SELECT pg_terminate_backend(pid, ${PATIENCE_MS}) FROM pg_stat_activity WHERE usename = 'app'`,
  );
  const rejected = await create();
  assert.deepEqual(
    [rejected.status, rejected.headers.get('retry-after'), await codeOf(rejected)],
    [503, '1', 50300],
  );
  const ready = await fetch(`${service.adminUrl}/ready`);
  assert.deepEqual([ready.status, await codeOf(ready)], [503, 50300]);

  await server.sql("ALTER ROLE app PASSWORD 'first'");
  const created = await create();
  assert.deepEqual([created.status, await created.json()], [200, { name: 'Alder' }]);
});

/** Resolves when new connections follow the changed configuration. */
async function reload({ sql }: Pick<PostgresServer, 'sql'>): Promise<void> {
  const loaded = async () => String((await sql('SELECT pg_conf_load_time()::text AS at'))[0]?.at);
  const before = await loaded();
  await sql('SELECT pg_reload_conf()');
  await until(() =>
    loaded().then(
      (at) => at !== before,
      // The new rules may reject this connection.
      () => true,
    ),
  );
}

async function codeOf(answer: Response): Promise<unknown> {
  const body: unknown = await answer.json();
  assert.ok(typeof body === 'object' && body !== null && 'error' in body);
  return body.error;
}
