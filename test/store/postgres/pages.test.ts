import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { plantFields } from '../../../src/plant.ts';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { toStoreError } from '../../../src/store/postgres/errors.ts';
import { createPageReader } from '../../../src/store/postgres/pages.ts';
import type { Statement } from '../../../src/store/postgres/statements.ts';
import type { Row } from '../../../src/store/rows.ts';
import { execute, connections as options, postgres } from '../../support/engines.ts';
import { create, EVERY_ID, prepare, upTo, writeAll } from '../../support/store-setup.ts';

const OWNERS = ['alice', 'bob', 'carol'];
const [ALONE, SHARED] = ['list-plants', 'list-plants-of-several'];

/** Opens a store in which each owner has a plant, and a reader of pages whose statements are recorded. */
async function openReader(t: TestContext) {
  const { url, open } = await prepare(t, postgres);
  const { store } = await open();
  await writeAll(
    store,
    OWNERS.map((owner) => create(1n, { owner, name: owner })),
  );
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const sent: Statement[] = [];
  const read = async (statement: Statement): Promise<readonly Row[]> => {
    sent.push(statement);
    try {
      return await connections.read(statement);
    } catch (error: unknown) {
      throw toStoreError(error);
    }
  };
  const readPage = createPageReader(read);
  const list = (owner: string, plants = 20, bytes = upTo(plants).bytes) =>
    readPage(owner, EVERY_ID, { plants, bytes });
  return { url, connections, sent, list };
}

function jsonOf(owner: string): string {
  return `[{"name":"${owner}"}]`;
}

test('pages that arrive together → up to two statements, or more with up to 16 short pages in each', async (t) => {
  const { sent, list } = await openReader(t);
  for (const [count, names] of [
    [2, Array(2).fill(ALONE)],
    [4, Array(2).fill(SHARED)],
    [17, Array(2).fill(SHARED)],
    [100, Array(7).fill(SHARED)],
  ] as const) {
    sent.length = 0;
    const owners = Array.from({ length: count }, (_, place) => OWNERS[place % OWNERS.length] ?? '');
    const pages = await Promise.all(owners.map((owner) => list(owner, 64)));
    assert.deepEqual(
      pages.map(({ json }) => json),
      owners.map(jsonOf),
    );
    assert.deepEqual(
      sent.map(({ name }) => name),
      names,
    );
  }
  sent.length = 0;
  await Promise.all(Array.from({ length: 10 }, () => list('bob', 65)));
  assert.deepEqual(
    sent.map(({ name }) => name),
    Array(10).fill(ALONE),
  );
});

test('a statement renders up to 4 MiB of all its pages, and up to the limit of each', async (t) => {
  const { sent, list } = await openReader(t);
  await Promise.all(Array.from({ length: 64 }, (_, place) => list('bob', place + 1, 64 * 1_024)));
  await list('bob', 20, 2_000);
  for (const { values: [, , , plants, bytes] = [] } of sent) {
    // Numbers, or arrays as text, such as {20,64}.
    const [rows, sizes] = [plants, bytes].map((one) => String(one).match(/\d+/g)?.map(Number));
    assert.ok(rows !== undefined && sizes !== undefined);
    assert.ok(rows.reduce((sum, row, place) => sum + row * (sizes[place] ?? 0), 0) <= 4 * 1_024 * 1_024);
    assert.ok(Math.max(...sizes) <= 64 * 1_024);
  }
  assert.deepEqual(sent.at(-1)?.values?.at(4), 2_000);
});

test('server cannot read one of the pages → only its owner gets an error', async (t) => {
  const { url, list } = await openReader(t);
  await execute(
    url,
    `ALTER TABLE plants RENAME TO stored;
     CREATE VIEW plants AS SELECT owner, id, ${plantFields.filter((field) => field !== 'name').join(', ')},
       CASE WHEN owner = 'bob' THEN (1 / (id - id))::text ELSE name END AS name FROM stored`,
  );
  const owners = [...OWNERS, ...OWNERS];
  const pages = await Promise.allSettled(owners.map((owner) => list(owner)));
  for (const [place, page] of pages.entries()) {
    const owner = owners[place] ?? '';
    if (page.status === 'fulfilled') assert.equal(page.value.json, jsonOf(owner));
    else assert.ok(owner === 'bob' && /division by zero/.test(String(page.reason)));
  }
  assert.equal(pages.filter(({ status }) => status === 'rejected').length, 2);
});

test('additional column `last` → pages say that more plants follow', async (t) => {
  const { url, list } = await openReader(t);
  await execute(url, 'ALTER TABLE plants ADD COLUMN last bigint');
  await execute(url, "INSERT INTO plants (owner, id, name) VALUES ('alice', 2, 'second')");
  for (const page of [await list('alice', 1), await list('alice', 20, jsonOf('alice').length)])
    assert.deepEqual([page.json, page.cut], [jsonOf('alice'), { last: 1n, count: 1 }]);
});

test('function `to_json(text)` of another user in the search path → not called', async (t) => {
  const { url, list } = await openReader(t);
  const changed = `'SELECT json ''"changed"'''`;
  await execute(url, `CREATE FUNCTION to_json(text) RETURNS json LANGUAGE sql AS ${changed}`);
  assert.equal((await list('alice')).json, jsonOf('alice'));
});
