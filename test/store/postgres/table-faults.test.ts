import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { migrateStore, openBulk } from '../../../src/store/open-engine.ts';
import { connections, execute, postgres } from '../../support/engines.ts';
import { bearer, startService } from '../../support/service.ts';

test('a table is missing, as during a restore over it → 50300, nothing stored, and not ready', async (t) => {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url);
  const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
  await execute(url, 'ALTER TABLE plants RENAME TO others');
  const plants = `${service.url}/plants`;
  for (const response of [
    await fetch(plants, { headers }),
    await fetch(plants, { headers, method: 'POST', body: '{"id":1,"name":"Alder"}' }),
    await fetch(`${plants}/1`, { headers, method: 'DELETE' }),
  ]) {
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '1']);
    const { error, message } = (await response.json()) as { error: number; message: string };
    assert.equal(error, 50300);
    assert.doesNotMatch(message, /unknown|may have/);
  }
  const unready = await fetch(`${service.adminUrl}/ready`);
  assert.equal(unready.status, 503);
  assert.match(await unready.text(), /relation .*plants.* does not exist/);

  await execute(url, 'ALTER TABLE others RENAME TO plants');
  assert.equal((await fetch(plants, { headers })).status, 200);
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
});

describe('a key of a table is missing, as after a restore without it', () => {
  for (const [removal, key] of [
    ['ALTER TABLE plants DROP CONSTRAINT plants_pkey', 'plants (owner, id)'],
    ['ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey', 'idempotency_keys (owner, key)'],
    ['DROP INDEX tokens_by_digest', 'tokens (digest)'],
    ['DROP INDEX tokens_by_id', 'tokens (id)'],
  ] as const)
    test(`${key} → \`check\` and /ready name it, until it is there again`, async (t) => {
      const url = await postgres.freshUrl(t);
      // With it, the server quotes the names of columns.
      await execute(url, `ALTER DATABASE ${new URL(url).pathname.slice(1)} SET quote_all_identifiers = on`);
      const service = await startService(t, url);
      const bulk = await openBulk(url, connections);
      t.after(() => bulk.close());
      const state = async () => {
        const ready = await fetch(`${service.adminUrl}/ready`);
        const { damages } = await bulk.inspect();
        return { damages, status: ready.status, text: await ready.text() };
      };
      assert.deepEqual(await bulk.inspect(), { damages: [] });
      await execute(url, removal);
      const { damages, status, text } = await state();
      assert.equal(status, 503);
      assert.equal(damages.length, 1);
      for (const message of [damages[0] ?? '', text])
        assert.match(message, new RegExp(`unique index.* on ${key.replaceAll(/[()]/g, '[$&]')};`));

      // Neither of these makes all values unique.
      await execute(url, `CREATE INDEX ON ${key}; CREATE UNIQUE INDEX ON ${key} WHERE owner <> 'alice'`);
      assert.equal((await state()).status, 503);
      await execute(url, `CREATE UNIQUE INDEX ON ${key}`);
      const { damages: none, status: ok } = await state();
      assert.deepEqual([none, ok], [[], 200]);
    });
});

test('keys of several tables are missing → one message names all', async (t) => {
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  await execute(
    url,
    'ALTER TABLE plants DROP CONSTRAINT plants_pkey; DROP INDEX tokens_by_digest, tokens_by_id',
  );
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  const [fault, ...more] = (await bulk.inspect()).damages;
  assert.match(fault ?? '', /on plants \(owner, id\), tokens \(digest\), tokens \(id\);/);
  assert.deepEqual(more, []);
});
