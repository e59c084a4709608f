import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { openForReading } from '../../../src/store/sqlite/connection.ts';
import { migrateSqlite } from '../../../src/store/sqlite/migrate.ts';
import { freshFolder } from '../../support/engines.ts';

/** Holds the file alone for 1.5 s, as the last connection does while it closes on a slow disk. */
const HOLDER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const db = new (require('node:sqlite').DatabaseSync)(workerData);
  db.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE');
  parentPort.postMessage('held');
  setTimeout(() => db.close(), 1500);
`;

test('another connection holds the file alone for 1.5 s → a read waits, and succeeds', async () => {
  const file = join(await freshFolder(), 'plants.db');
  await migrateSqlite(file);
  const holder = new Worker(HOLDER, { eval: true, workerData: file });
  const ended = once(holder, 'exit');
  await once(holder, 'message');
  using db = openForReading(file);
  assert.deepEqual({ ...db.prepare('SELECT count(*) AS plants FROM plants').get() }, { plants: 0 });
  await ended;
});
