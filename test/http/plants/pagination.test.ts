import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PAGE_BYTES, PlantPages } from '../../../src/http/plants/pagination.ts';
import { engines } from '../../support/engines.ts';
import { create, EVERY_ID, openOne, remove } from '../../support/store-setup.ts';

const large = 'x'.repeat(2 * PAGE_BYTES);

for (const engine of engines) {
  test(`large plant deleted after its page → the list goes on behind it, or ends, on ${engine.name}`, async (t) => {
    const store = await openOne(t, engine);
    const pagesOf = () => new PlantPages(store, 'alice', EVERY_ID, 10, (read) => read());
    assert.equal(await store.write(create(2n, { name: 'Alder' })), 'created');
    const whole = pagesOf();
    assert.equal(await whole.next(PAGE_BYTES), '[{"name":"Alder"}]');
    assert.equal(await store.write(create(1n, { name: large })), 'created');

    const [first, second] = [pagesOf(), pagesOf()];
    for (const pages of [first, second]) {
      assert.equal(await pages.next(PAGE_BYTES), '[]');
      assert.ok((pages.largeBytes ?? 0) >= large.length);
    }
    assert.equal(await store.write(remove(1n)), 'deleted');
    assert.equal(String(await first.nextLarge()), '{"name":"Alder"}');
    assert.equal(await store.write(remove(2n)), 'deleted');
    assert.equal(await second.nextLarge(), undefined);
    for (const pages of [whole, first, second]) {
      assert.deepEqual([pages.ended, pages.cutAt, pages.largeBytes], [true, undefined, undefined]);
      assert.equal(pages.expectedBytes(), 0);
      assert.equal(await pages.next(PAGE_BYTES), undefined);
    }
  });
}
