/**
 * Measures the rate of durable inserts of SQLite itself, in one process with many inserts per commit.
 * Arguments: FILE RUN SECONDS.
 */
import { openForWriting } from '../../src/store/sqlite/connection.ts';
import { migrateSqlite } from '../../src/store/sqlite/migrate.ts';
import { createInOrder, NEW_PLANT } from '../workload.ts';
import type { LoadResult } from './generator.ts';
import { createIds } from './ids.ts';

/** Inserts per commit. With 64 connections, a batch in the service has up to 64 writes. */
const BATCH = 64;

const [file = '', run, seconds] = process.argv.slice(2);
await migrateSqlite(file);
process.stdout.write(`${JSON.stringify(insert(Number(run), Number(seconds)))}\n`);

function insert(run: number, seconds: number): LoadResult {
  using db = openForWriting(file);
  db.exec('PRAGMA wal_autocheckpoint = 1000');
  const create = db.prepare('INSERT INTO plants (owner, id, name, tag) VALUES (?, ?, ?, ?)');
  const nextId = createIds(createInOrder.ids(run));
  const begin = performance.now();
  let answers = 0;
  while (performance.now() < begin + seconds * 1_000) {
    db.exec('BEGIN IMMEDIATE');
    for (let n = 0; n < BATCH; n += 1) create.run('bench', nextId(), NEW_PLANT.name, NEW_PLANT.tag);
    db.exec('COMMIT');
    answers += BATCH;
  }
  return {
    answers,
    seconds: (performance.now() - begin) / 1_000,
    p50Ms: undefined,
    p99Ms: undefined,
    failures: 0,
  };
}
