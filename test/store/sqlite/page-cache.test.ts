import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { INT64_MAX } from '../../../src/plant.ts';
import { migrateSqlite } from '../../../src/store/sqlite/migrate.ts';
import { openReader } from '../../../src/store/sqlite/reader.ts';
import { freshFolder } from '../../support/engines.ts';
import { upTo } from '../../support/store-setup.ts';

/** Returns the bytes of the heap that are in use, without garbage. */
function heapInUse(): number {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect === 'function') collect();
  return process.memoryUsage().heapUsed;
}

test('lists of many different empty pages → the cached pages take a few megabytes', async (t) => {
  const file = join(await freshFolder(), 'plants.db');
  await migrateSqlite(file);
  const reader = await openReader(file);
  t.after(() => reader.close());
  const before = heapInUse();
  for (let from = 1n; from <= 60_000n; from += 1n)
    assert.equal(reader.listPlants('alice', { from, to: INT64_MAX }, upTo(20)).json, '[]');
  assert.ok(heapInUse() - before < 6 * 2 ** 20, `${heapInUse() - before} bytes`);
});
