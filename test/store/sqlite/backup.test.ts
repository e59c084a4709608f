import assert from 'node:assert/strict';
import { existsSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { backUpStore, migrateStore, openBulk } from '../../../src/store/open-engine.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { OperatorError } from '../../../src/thrown-errors.ts';
import { connections, execute, freshFolder, rowsOf } from '../../support/engines.ts';
import { changeFreePages } from '../../support/faults/damaged-file.ts';
import { plantRow } from '../../support/plants.ts';

/** A store with a number of plants of 1,000 characters, and the path for its backup. */
async function storeOf(plants: number): Promise<{ file: string; url: string; to: string }> {
  const folder = await freshFolder();
  const file = join(folder, 'plants.db');
  const url = `sqlite:${file}`;
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  const rows = Array.from({ length: plants }, (_, id) => plantRow(BigInt(id), { name: 'x'.repeat(1_000) }));
  await bulk.savePlants(rows, 'fail');
  await bulk.close();
  return { file, url, to: join(folder, 'backup.db') };
}

const ignore = (): void => undefined;

function isFailure(message: RegExp) {
  return (error: unknown): boolean => error instanceof StoreUnavailable && message.test(error.message);
}

test('the copy has all rows, and the progress ends with all pages', async () => {
  const { url, to } = await storeOf(2_000);
  const progress: (readonly [number, number])[] = [];
  await backUpStore(url, to, (done, total) => progress.push([done, total]));
  assert.ok(progress.length > 0);
  for (const [done, total] of progress) assert.ok(done > 0 && done <= total, `${done} of ${total}`);
  assert.deepEqual([existsSync(`${to}-wal`), existsSync(`${to}-shm`)], [false, false]);
  const count = 'SELECT count(*) AS plants FROM plants';
  assert.deepEqual(await rowsOf(`sqlite:${to}`, count), [{ plants: 2_000 }]);
});

test('the copy is removed before its check, as by a signal → an error, and the check does not create it again', async () => {
  const { url, to } = await storeOf(1);
  const checkTarget = (): void => rmSync(to, { force: true });
  await assert.rejects(backUpStore(url, to, ignore, checkTarget), /unable to open database file/);
  assert.equal(existsSync(to), false);
});

test('a commit between any two parts of the copy → the copy goes on, with the rows from its begin', async () => {
  const { file, url, to } = await storeOf(5_000);
  using writer = new DatabaseSync(file);
  const progress: number[] = [];
  await backUpStore(url, to, (done, total) => {
    progress.push(done);
    // A copy that started again at each commit would never end.
    if (done < total && progress.length < 100)
      writer.exec(`INSERT INTO plants (owner, id, name) VALUES ('bob', ${progress.length}, 'Alder')`);
  });
  assert.ok(progress.length > 2, progress.join());
  assert.deepEqual(
    progress,
    progress.toSorted((a, b) => a - b),
  );
  const count = 'SELECT owner, count(*) AS plants FROM plants GROUP BY owner';
  assert.deepEqual(await rowsOf(`sqlite:${to}`, count), [{ owner: 'alice', plants: 5_000 }]);
});

test('a row of the store breaks a rule of its table → the backup and the check name it', async (t) => {
  const { url, to } = await storeOf(1);
  await execute(
    url,
    `PRAGMA ignore_check_constraints = ON;
     INSERT INTO idempotency_keys VALUES ('alice', 'one', x'00', 'unknown', 1)`,
  );
  const failure =
    /^the backup is damaged: CHECK constraint failed in idempotency_keys; run `plant-store check` on the store$/;
  await assert.rejects(backUpStore(url, to, ignore), isFailure(failure));
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());
  assert.deepEqual(await bulk.inspect(), { damages: ['CHECK constraint failed in idempotency_keys'] });
});

test('SQLite reports a fault under a title → the backup fails with the fault alone', async () => {
  const { file, url, to } = await storeOf(1);
  await changeFreePages(file);
  const failure =
    /^the backup is damaged: [^*\n]*is 0 but should be 9; run `plant-store check` on the store$/;
  await assert.rejects(backUpStore(url, to, ignore), isFailure(failure));
});

test('the copy is replaced by another file meanwhile → rejected, with the rows of both', async () => {
  const [{ url, to }, other] = await Promise.all([storeOf(2_000), storeOf(3)]);
  const replace = (): void => {
    if (existsSync(other.file)) renameSync(other.file, to);
  };
  const failure =
    /^the backup is wrong: it has .*\b3 plants,.* the store .*\b2000 plants,.*; make another backup$/;
  await assert.rejects(backUpStore(url, to, replace), isFailure(failure));
});

test('the copy is damaged meanwhile → rejected as the copy, not the store', async () => {
  const { url, to } = await storeOf(1);
  const damage = (): void => {
    if (existsSync(to)) writeFileSync(to, 'no database', { flag: 'r+' });
  };
  const failure = /^the backup is damaged: file is not a database .*; run `plant-store check` on the store$/;
  await assert.rejects(backUpStore(url, to, ignore, damage), isFailure(failure));
});

test('the file for the copy is another one → rejected before SQLite opens it', async () => {
  const { url, to } = await storeOf(1);
  const replaced = new OperatorError('replaced');
  const reject = (): never => {
    throw replaced;
  };
  await assert.rejects(backUpStore(url, to, ignore, reject), replaced);
  assert.equal(existsSync(to), false);
});

test('the file for the copy becomes another one meanwhile → rejected before the check opens it', async () => {
  const { url, to } = await storeOf(2_000);
  const replaced = new OperatorError('replaced');
  const victim = `${to}.victim`;
  writeFileSync(victim, 'before');
  const replace = (): void => {
    if (existsSync(`${to}.moved`)) return;
    renameSync(to, `${to}.moved`);
    symlinkSync(victim, to);
  };
  const reject = (): void => {
    if (existsSync(`${to}.moved`)) throw replaced;
  };
  await assert.rejects(backUpStore(url, to, replace, reject), replaced);
  assert.equal(readFileSync(victim, 'utf8'), 'before');
});

test('the copy cannot be written → rejected, with its path', async () => {
  const { url, to } = await storeOf(1);
  const missing = join(to, 'backup.db');
  const failure = new RegExp(`^the store cannot be copied to ${missing}: unable to open database`);
  await assert.rejects(backUpStore(url, missing, ignore), isFailure(failure));
});
