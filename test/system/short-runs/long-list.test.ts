import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { describe, it } from 'node:test';
import {
  describeFigures,
  fillStore,
  GROWTH_LIMIT,
  measureLongList,
  startList,
} from '../../long/long-list.ts';
import { Connection } from '../../support/clients/keep-alive-client.ts';
import { engines } from '../../support/engines.ts';
import {
  inMebibytes,
  MEBIBYTE,
  peakMemory,
  resetPeakMemory,
  residentMemory,
} from '../../support/process-resources.ts';
import { isOfTestSetup, newInstallation } from '../../support/program.ts';

const PLANTS = 100_000;

/** Makes the list 40 MiB, so that buffering the whole list would be visible. */
const LONG_NAMES = 400;
const SHORT_NAMES = 20;
const LONGEST_NAMES = { plants: 800, nameLength: 60_000 };

/** A heap smaller than the list, and an allocator that returns free memory to the system. */
const FRUGAL = {
  NODE_OPTIONS: '--max-old-space-size=48 --max-semi-space-size=1',
  MALLOC_TRIM_THRESHOLD_: '65536',
  MALLOC_MMAP_THRESHOLD_: '65536',
};

describe('list of 100,000 plants without a limit', () => {
  for (const engine of engines) {
    it(`complete and in order, in constant memory, on ${engine.name}`, async (t) => {
      const databaseUrl = await engine.freshUrl(t);
      const figures = await measureLongList(PLANTS, {
        nameLength: LONG_NAMES,
        times: 1,
        databaseUrl,
        variables: FRUGAL,
      });
      for (const line of describeFigures(figures)) t.diagnostic(line);
      assert.equal(figures.plants, PLANTS);
      assert.ok(figures.bytes > 39 * MEBIBYTE);
      assert.ok(figures.peak - figures.before < GROWTH_LIMIT, 'the memory grew too much');
    });
  }

  it('names as long as a body allows → same memory', async (t) => {
    const figures = await measureLongList(LONGEST_NAMES.plants, { ...LONGEST_NAMES, times: 1 });
    for (const line of describeFigures(figures)) t.diagnostic(line);
    assert.equal(figures.plants, LONGEST_NAMES.plants);
    assert.ok(figures.peak - figures.before < GROWTH_LIMIT, 'the memory grew too much');
  });

  it('other requests get responses meanwhile', async (t) => {
    const figures = await measureLongList(PLANTS, { nameLength: SHORT_NAMES, times: 10 });
    for (const line of describeFigures(figures)) t.diagnostic(line);
    assert.equal(figures.plants, PLANTS);
    assert.ok(figures.lists.count > 0 && figures.creates.count > 0);
    // A list that blocks others makes them wait for its end. `npm run test:long-list` checks the promised bound.
    const median = Math.max(figures.lists.median, figures.creates.median);
    assert.ok(median < figures.listMs / 2, `others waited ${median} of ${figures.listMs} ms`);
  });

  it('slow reader → blocks neither memory, checkpoints nor other clients', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    await fillStore(installation.databaseUrl, 'alice', PLANTS, LONG_NAMES);
    const service = await installation.serve();
    const before = await residentMemory(service);
    await resetPeakMemory(service);

    const list = await startList(service, token);
    await readAbout(list, MEBIBYTE);
    const other = new Connection(service.url, token);
    for (let id = 1n; id <= 1_000n; id += 1n) {
      assert.equal((await other.create(id, { name: `plant ${id}`, tag: null }))?.status, 200);
    }
    other.close();
    const growth = (await peakMemory(service)) - before;
    const { size } = await stat(`${installation.file}-wal`);
    t.diagnostic(`memory: +${inMebibytes(growth)}; log of the store: ${size} bytes`);
    assert.ok(growth < GROWTH_LIMIT, `the memory grew by ${growth} bytes`);
    assert.ok(size < 4 * MEBIBYTE, `the log of the store grew to ${size} bytes`);

    list.destroy();
    await service.logged(({ operation }) => operation === 'listPlants');
    const { code } = await service.stop();
    assert.equal(code, 0);
    assert.deepEqual(
      service.log.filter((line) => Number(line.level) > 30 && !isOfTestSetup(line)),
      [],
    );
  });
});

/** Reads a part of a response and then stops. */
function readAbout(answer: IncomingMessage, bytes: number): Promise<void> {
  let left = bytes;
  return new Promise((resolve) => {
    answer.on('error', () => undefined);
    answer.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left > 0) return;
      answer.pause();
      resolve();
    });
  });
}
