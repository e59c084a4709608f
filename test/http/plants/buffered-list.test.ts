import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BUFFERED_LIST_BYTES, bufferList } from '../../../src/http/plants/buffered-list.ts';
import { PAGE_BYTES, PlantPages } from '../../../src/http/plants/pagination.ts';
import { engines } from '../../support/engines.ts';
import { create, EVERY_ID, openOne } from '../../support/store-setup.ts';

/** Counts the bytes that are reserved. */
class CountedBytes {
  all = 0;
  held = 0;

  async reserve(bytes: number): Promise<void> {
    this.all += bytes;
    this.held += bytes;
  }

  release(bytes: number): void {
    this.held -= bytes;
  }
}

const tiny = Array.from({ length: 64 }, () => 'x');
const some = Array.from({ length: 60 }, () => 'y'.repeat(1_000));
const large = 'z'.repeat(PAGE_BYTES + 1_000);
const escaped = '\u0001'.repeat(PAGE_BYTES);

const lists: readonly [title: string, names: readonly string[]][] = [
  ['no plants', []],
  ['plants of one page', tiny],
  ['small plants before many others', [...tiny, ...some, ...some, ...some]],
  ['large plants alone', [large, escaped, large]],
  [
    'large plants among others',
    [...tiny, ...Array.from({ length: 12 }, () => [...some, large, escaped]).flat()],
  ],
];

for (const engine of engines)
  for (const [title, names] of lists)
    test(`${title} → buffered exactly, all memory reserved, on ${engine.name}`, async (t) => {
      const store = await openOne(t, engine);
      await Promise.all(names.map((name, id) => store.write(create(BigInt(id), { name }))));
      const pages = new PlantPages(store, 'alice', EVERY_ID, 5_000, (read) => read());
      const first = await pages.first(PAGE_BYTES);
      const held = new CountedBytes();
      const expected = pages.pageBytes + PAGE_BYTES;
      await held.reserve(expected);
      const parts = await bufferList(pages, first, expected, held);
      const json = Buffer.concat(parts);
      assert.equal(json.toString(), JSON.stringify(names.map((name) => ({ name }))));
      assert.equal(held.held, json.length);
      const blocks = new Set(parts.map(({ buffer }) => buffer));
      const allocated = [...blocks].reduce((sum, { byteLength }) => sum + byteLength, 0);
      assert.ok(allocated <= held.all, `${allocated} bytes allocated, ${held.all} reserved`);
      assert.ok(held.all < 2 * BUFFERED_LIST_BYTES);
    });

for (const engine of engines)
  test(`large plants up to the last byte of the first block → complete, all memory reserved, on ${engine.name}`, async (t) => {
    // One byte is free after the first page: for the comma before the large plant.
    for (const names of [
      ['x', large],
      ['x', large, large],
    ]) {
      const store = await openOne(t, engine);
      await Promise.all(names.map((name, id) => store.write(create(BigInt(id), { name }))));
      const pages = new PlantPages(store, 'alice', EVERY_ID, 5_000, (read) => read());
      const first = await pages.first(PAGE_BYTES);
      const held = new CountedBytes();
      await held.reserve(pages.pageBytes);
      const json = Buffer.concat(await bufferList(pages, first, pages.pageBytes, held));
      assert.equal(json.toString(), JSON.stringify(names.map((name) => ({ name }))));
      assert.equal(held.held, json.length);
    }
  });

for (const engine of engines)
  for (const [what, missing, plants] of [
    ['of 8 MiB → ends', 0, 1],
    ['one byte shorter → has one more plant', 1, 2],
  ] as const)
    test(`page ${what}, on ${engine.name}`, async (t) => {
      const store = await openOne(t, engine);
      const name = 'x'.repeat(BUFFERED_LIST_BYTES - '[{"name":""}]'.length - missing);
      const names = [name, 'Alder', 'Fern'];
      await Promise.all(names.map((name, id) => store.write(create(BigInt(id), { name }))));
      const pages = new PlantPages(store, 'alice', EVERY_ID, 5_000, (read) => read());
      const first = await pages.first(PAGE_BYTES);
      const held = new CountedBytes();
      await held.reserve(PAGE_BYTES);
      const json = Buffer.concat(await bufferList(pages, first, PAGE_BYTES, held));
      assert.equal(JSON.parse(json.toString()).length, plants);
      assert.equal(pages.cutAt, BigInt(plants - 1));
    });
