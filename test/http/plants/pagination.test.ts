import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PAGE_BYTES, PlantPages } from '../../../src/http/plants/pagination.ts';
import { INT64_MAX } from '../../../src/plant.ts';
import { engines } from '../../support/engines.ts';
import { create, EVERY_ID, openOne, remove } from '../../support/store-setup.ts';

const large = 'x'.repeat(2 * PAGE_BYTES);

/** Reserves any number of bytes. */
const UNLIMITED = { reserve: async () => undefined, release: () => undefined };

for (const engine of engines) {
  test(`range behind the last possible id, as of a forged cursor → no plants, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    assert.equal(await store.write(create(INT64_MAX, { name: 'Alder' })), 'created');
    const range = { from: INT64_MAX + 1n, to: INT64_MAX };
    const pages = new PlantPages(store, 'alice', range, 10, (read) => read());
    assert.equal(await pages.first(PAGE_BYTES), '[]');
    assert.equal(await pages.next(PAGE_BYTES, UNLIMITED), undefined);
  });

  test(`large plant deleted after its page → the list goes on behind it, or ends, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    const pagesOf = () => new PlantPages(store, 'alice', EVERY_ID, 10, (read) => read());
    assert.equal(await store.write(create(2n, { name: 'Alder' })), 'created');
    const whole = pagesOf();
    assert.equal(await whole.first(PAGE_BYTES), '[{"name":"Alder"}]');
    assert.equal(await store.write(create(1n, { name: large })), 'created');

    const [first, second] = [pagesOf(), pagesOf()];
    for (const pages of [first, second]) assert.equal(await pages.first(PAGE_BYTES), '[]');
    assert.equal(await store.write(remove(1n)), 'deleted');
    let held = 0;
    let peak = 0;
    const reservation = {
      reserve: async (bytes: number) => {
        held += bytes;
        peak = Math.max(peak, held);
      },
      release: (bytes: number) => {
        held -= bytes;
      },
    };
    const other = '{"name":"Alder"}';
    assert.equal(String(await first.next(PAGE_BYTES, reservation)), other);
    assert.ok(peak >= large.length);
    assert.equal(held, other.length);
    assert.equal(await store.write(remove(2n)), 'deleted');
    assert.equal(await second.next(PAGE_BYTES, reservation), undefined);
    assert.equal(held, other.length);
    for (const pages of [whole, first, second]) {
      assert.deepEqual([pages.ended, pages.cutAt], [true, undefined]);
      assert.equal(pages.expectedBytes(), 0);
      assert.equal(await pages.next(PAGE_BYTES, reservation), undefined);
    }
  });
  test(`page after short plants → up to four times as many, since long ones may follow, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    await Promise.all(Array.from({ length: 100 }, (_, id) => store.write(create(BigInt(id), { name: 'F' }))));
    const { mock } = t.mock.method(store, 'listPlants');
    const pages = new PlantPages(store, 'alice', EVERY_ID, 10_000, (read) => read());
    await pages.first(PAGE_BYTES);
    while ((await pages.next(PAGE_BYTES, UNLIMITED)) !== undefined);
    assert.deepEqual(
      mock.calls.map(({ arguments: [, , limit] }) => limit?.plants),
      [64, 256],
    );
  });

  test(`long plants between short ones → few long ones are read in vain, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    const names = Array.from({ length: 60 }, (_, index) => (index % 2 === 0 ? 'Fern' : 'x'.repeat(40_000)));
    await Promise.all(names.map((name, index) => store.write(create(BigInt(index), { name }))));
    const { mock } = t.mock.method(store, 'listPlants');
    const pages = new PlantPages(store, 'alice', EVERY_ID, 100, (read) => read());
    const members: string[] = [];
    let part: string | Buffer | undefined = await pages.first(PAGE_BYTES);
    for (; part !== undefined; part = await pages.next(PAGE_BYTES, UNLIMITED))
      members.push(String(part).slice(1, -1));
    assert.equal(`[${members.join(',')}]`, JSON.stringify(names.map((name) => ({ name }))));
    const read = mock.calls.map(({ arguments: [, , limit] }) => limit?.plants ?? 0);
    assert.ok(
      read.slice(1).every((plants) => plants <= 4 * 3),
      String(read),
    );
  });

  test(`names in characters of three bytes → no page exceeds its limit of bytes, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    const ids = Array.from({ length: 2_000 }, (_, index) => BigInt(index));
    await Promise.all(ids.map((id) => store.write(create(id, { name: '木'.repeat(20) }))));
    const { mock } = t.mock.method(store, 'listPlants');
    const pages = new PlantPages(store, 'alice', EVERY_ID, 2_000, (read) => read());
    let page: string | Buffer | undefined = await pages.first(PAGE_BYTES);
    for (; page !== undefined; page = await pages.next(PAGE_BYTES, UNLIMITED))
      assert.equal(pages.pageBytes, Buffer.byteLength(page));
    assert.ok(mock.callCount() > 3);
    for (const { arguments: values, result } of mock.calls.slice(0, -1))
      assert.equal((await result)?.cut?.count, values[2]?.plants);
  });
}
