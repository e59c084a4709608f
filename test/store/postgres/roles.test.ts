// cspell:words NOBYPASSRLS
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { type TestContext, test } from 'node:test';
import pg from 'pg';
import { migrateStore, openBulk, storeExists } from '../../../src/store/open-engine.ts';
import { connections, postgres } from '../../support/engines.ts';
import { startService } from '../../support/service.ts';

/** The grants that docs/postgresql.md gives to the account the service runs as. */
const GRANTS = `
  GRANT SELECT, INSERT, UPDATE, DELETE ON plants, idempotency_keys, tokens TO app;
  GRANT SELECT ON migrations TO app;`;

/** A store that was migrated, and an account that may serve it. */
async function migrateForAnother(t: TestContext): Promise<{ url: string; app: string }> {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  const app = `app_${randomBytes(8).toString('hex')}`;
  await asAdmin(t, url, app, GRANTS);
  return { url, app };
}

test('an account without schema privileges can serve a store that another account migrated', async (t) => {
  const { url, app } = await migrateForAnother(t);
  assert.ok(await storeExists(accountUrl(url, app)));
  const service = await startService(t, accountUrl(url, app));
  const token = await service.token();
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };

  const created = await fetch(`${service.url}/plants`, {
    method: 'POST',
    headers: { ...headers, 'idempotency-key': 'one' },
    body: '{"id":1,"name":"Alder"}',
  });
  assert.deepEqual([created.status, await created.json()], [200, { name: 'Alder' }]);
  const listed = await fetch(`${service.url}/plants`, { headers });
  assert.deepEqual(await listed.json(), [{ name: 'Alder' }]);
  const deleted = await fetch(`${service.url}/plants/1`, { method: 'DELETE', headers });
  assert.equal(deleted.status, 204);
});

test('a second login with the rights of the account serves, also when the account may no longer log in', async (t) => {
  const { url, app } = await migrateForAnother(t);
  await asAdmin(t, url, `${app}2`, `GRANT ${app} TO ${app}2; ALTER ROLE ${app} NOLOGIN`);
  const service = await startService(t, accountUrl(url, `${app}2`));
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
  const headers = { authorization: `Bearer ${await service.token()}`, 'content-type': 'application/json' };
  const body = '{"id":1,"name":"Alder"}';
  const created = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
  assert.equal(created.status, 200);
});

test('account may not migrate → StoreNotOpened, which says to migrate as the owner', async (t) => {
  const rejectsMigration = (account: string, why: string): Promise<void> =>
    assert.rejects(
      migrateStore(account),
      new RegExp(`^StoreNotOpened: .*: ${why}; run \`plant-store migrate\` as the owner of the tables; if `),
    );
  const { url, app } = await migrateForAnother(t);
  await run(url, `REVOKE SELECT ON migrations FROM ${app}`);
  await rejectsMigration(accountUrl(url, app), 'permission denied for table migrations');

  const empty = await postgres.freshUrl(t);
  await asAdmin(t, empty, `${app}2`, '');
  await rejectsMigration(accountUrl(empty, `${app}2`), 'permission denied for schema public');
  await run(empty, 'REVOKE USAGE ON SCHEMA public FROM public');
  await rejectsMigration(accountUrl(empty, `${app}2`), 'no schema has been selected to create in');
});

test('account lacks a privilege → not ready, and the log names it', async (t) => {
  const { url, app } = await migrateForAnother(t);
  await run(url, `REVOKE ALL ON plants, idempotency_keys, tokens FROM ${app}`);
  const service = await startService(t, accountUrl(url, app));
  const lacks = [
    ...['idempotency_keys', 'plants'].flatMap((table) =>
      ['DELETE', 'INSERT', 'SELECT', 'UPDATE'].map((action) => `${action} on ${table}`),
    ),
    'SELECT on tokens, UPDATE on tokens',
  ];
  const message = `not ready: store: the database account of the service lacks ${lacks.join(', ')}; grant it to this account`;
  const unready = await fetch(`${service.adminUrl}/ready`);
  assert.deepEqual([unready.status, await unready.json()], [503, { error: 50300, message }]);
  const metrics = async (): Promise<string> => (await fetch(`${service.adminUrl}/metrics`)).text();
  assert.match(await metrics(), /^plant_store_ready\{check="store"[^}]*\} 0$/m);

  await run(
    url,
    `GRANT DELETE, INSERT, SELECT, UPDATE ON idempotency_keys, plants TO ${app};
     GRANT SELECT, UPDATE ON tokens TO ${app}`,
  );
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
  assert.match(await metrics(), /^plant_store_ready\{check="store"[^}]*\} 1$/m);
});

test('row-level security applies to the account → errors instead of an empty store, and not ready', async (t) => {
  const { url, app } = await migrateForAnother(t);
  const service = await startService(t, accountUrl(url, app));
  const bulk = await openBulk(accountUrl(url, app), connections);
  t.after(() => bulk.close());
  const headers = { authorization: `Bearer ${await service.token()}` };
  const state = async () => {
    const { status } = await fetch(`${service.url}/plants`, { headers });
    const ready = await fetch(`${service.adminUrl}/ready`);
    return { statuses: [status, ready.status], message: await ready.text() };
  };
  await run(
    url,
    'ALTER TABLE plants ENABLE ROW LEVEL SECURITY; ALTER TABLE tokens ENABLE ROW LEVEL SECURITY',
  );
  const hidden = await state();
  assert.deepEqual(hidden.statuses, [500, 503]);
  assert.match(hidden.message, /row-level security .*plants, tokens;/);
  await assert.rejects(
    bulk.read(['plants'], (contents) => contents.countPlants()),
    /row-level security/,
  );

  await run(url, `ALTER TABLE tokens DISABLE ROW LEVEL SECURITY; ALTER ROLE ${app} BYPASSRLS`);
  assert.deepEqual((await state()).statuses, [200, 200]);
  await run(url, `ALTER ROLE ${app} NOBYPASSRLS; ALTER TABLE plants OWNER TO ${app}`);
  assert.deepEqual((await state()).statuses, [200, 200]);
  await run(url, 'ALTER TABLE plants FORCE ROW LEVEL SECURITY');
  assert.deepEqual((await state()).statuses, [500, 503]);
});

test('account may not delete expired keys → warning in the log', async (t) => {
  const { url, app } = await migrateForAnother(t);
  await run(url, `REVOKE DELETE ON idempotency_keys FROM ${app}`);
  const service = await startService(t, accountUrl(url, app));
  const logged = (): unknown =>
    service.logLines
      .map((line) => JSON.parse(line))
      .find(({ msg }) => msg === 'expired idempotency keys were not deleted; retrying within a minute');
  while (logged() === undefined) await fetch(`${service.adminUrl}/ready`);
  assert.match(JSON.stringify(logged()), /"level":40,.*permission denied for table idempotency_keys/);
});

function accountUrl(url: string, account: string): string {
  const other = new URL(url);
  other.username = account;
  other.password = account;
  return other.href;
}

/** Creates an account with its grants; it is dropped after the test, when the database is gone. */
async function asAdmin(
  t: Pick<TestContext, 'after'>,
  url: string,
  account: string,
  grants: string,
): Promise<void> {
  await run(
    url,
    `CREATE ROLE ${account} LOGIN PASSWORD '${account}'; ${grants.replaceAll(' app;', ` ${account};`)}`,
  );
  t.after(() => run(process.env.TEST_DATABASE_URL ?? '', `DROP ROLE ${account}`));
}

async function run(url: string, statements: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statements).finally(() => client.end());
}
