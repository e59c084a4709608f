import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Connections } from '../../../src/store/postgres/connections.ts';
import { meaningOf } from '../../../src/store/postgres/errors.ts';
import { createPageReader } from '../../../src/store/postgres/pages.ts';
import type { Row, Statement } from '../../../src/store/postgres/statements.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { engines, execute, connections as options } from '../../support/engines.ts';
import { create, EVERY_ID, prepare, upTo, writeAll } from '../../support/store-setup.ts';

const postgres = engines.find(({ name }) => name === 'postgres');
const OWNERS = ['alice', 'bob', 'carol'];

/** Opens a store in which each owner has a plant, and a reader of pages whose statements are recorded. */
async function openReader(t: TestContext) {
  assert.ok(postgres !== undefined);
  const { url, open } = await prepare(t, postgres);
  const { store } = await open();
  await writeAll(
    store,
    OWNERS.map((owner) => create(1n, { owner, name: owner })),
  );
  const connections = new Connections(url, options);
  t.after(() => connections.close());
  const sent: unknown[] = [];
  const read = async (statement: Statement): Promise<readonly Row[]> => {
    sent.push(statement.name);
    try {
      return await connections.read(statement);
    } catch (error: unknown) {
      throw meaningOf(error);
    }
  };
  const readPage = createPageReader(read);
  const list = (owner: string, plants = 20) => readPage(owner, EVERY_ID, upTo(plants));
  return { url, connections, sent, list };
}

function jsonOf(owner: string): string {
  return `[{"name":"${owner}"}]`;
}

test('short pages of an event-loop iteration → up to 16 share a statement; long ones have their own', async (t) => {
  const { sent, list } = await openReader(t);
  const owners = Array.from({ length: 17 }, (_, place) => OWNERS[place % OWNERS.length] ?? '');
  const pages = await Promise.all([...owners.map((owner) => list(owner)), list('bob', 65)]);
  assert.deepEqual(
    pages.map(({ json }) => json),
    [...owners, 'bob'].map(jsonOf),
  );
  assert.deepEqual(sent.toSorted(), ['list-plants', 'list-plants-of-several', 'list-plants-of-several']);
});

test('server cannot read one of the pages → it fails alone, and pages are read alone for a time', async (t) => {
  const { url, sent, list } = await openReader(t);
  await execute(
    url,
    `ALTER TABLE plants RENAME TO stored;
     CREATE VIEW plants AS SELECT owner, id, tag,
       CASE WHEN owner = 'bob' THEN (1 / (id - id))::text ELSE name END AS name FROM stored`,
  );
  const [alice, bob, carol] = await Promise.allSettled(OWNERS.map((owner) => list(owner)));
  assert.ok(alice?.status === 'fulfilled' && alice.value.json === jsonOf('alice'));
  assert.ok(bob?.status === 'rejected' && /division by zero/.test(String(bob.reason)));
  assert.ok(carol?.status === 'fulfilled' && carol.value.json === jsonOf('carol'));
  sent.length = 0;
  await Promise.all([list('alice'), list('carol')]);
  assert.deepEqual(sent, ['list-plants', 'list-plants']);
});

test('no connection → pages are rejected without a second try', async () => {
  let tries = 0;
  const readPage = createPageReader(async () => {
    tries += 1;
    throw new StoreUnavailable('no connection', { cause: new Error('connection lost') });
  });
  await assert.rejects(readPage('alice', EVERY_ID, upTo(20)), StoreUnavailable);
  assert.equal(tries, 1);
});
