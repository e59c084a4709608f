import assert from 'node:assert/strict';
import { closeSync, existsSync, openSync, readFileSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { copyFile, link, mkdir, readdir, rename, rm, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { INT64_MAX, INT64_MIN } from '../../../src/plant.ts';
import { openBulk, openStore } from '../../../src/store/open-engine.ts';
import { openForReading, openForWriting } from '../../../src/store/sqlite/connection.ts';
import { reasonOf } from '../../../src/store/sqlite/errors.ts';
import { lockForService, type ServiceLock } from '../../../src/store/sqlite/files/service-lock.ts';
import {
  type Outcome,
  type PlantPage,
  type Store,
  StoreDamaged,
  StoreNotOpened,
  StoreUnavailable,
  type Write,
} from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { connections, freshFolder } from '../../support/engines.ts';
import { PATIENCE_MS, until } from '../../support/patience.ts';
import { plantRow } from '../../support/plants.ts';
import { create as creation, failTest, parsePlants, upTo } from '../../support/store-setup.ts';

const DAY_MS = 86_400_000;
const PAGE_BYTES = 4_096;

interface Opened {
  readonly store: Store;
  readonly fatal: readonly Error[];
  readonly clock: { now: number };
  close(): Promise<void>;
}

/** A store on a file, which closes after the test. Fatal errors are collected. */
async function open(t: TestContext, file: string): Promise<Opened> {
  const fatal: Error[] = [];
  const clock = { now: Date.UTC(2026, 0, 1) };
  const store = await openStore(`sqlite:${file}`, {
    connections,
    onFatal: (error) => fatal.push(error),
    now: () => clock.now,
    keyDeletion: { onFailure: failTest },
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= store.close());
  t.after(close);
  return { store, fatal, clock, close };
}

async function freshFile(): Promise<string> {
  return join(await freshFolder(), 'plants.db');
}

test('store named by a symbolic link → its log is measured, and its lock is that of the file', async (t) => {
  const file = await freshFile();
  const link = join(await freshFolder(), 'link.db');
  await symlink(file, link);
  const { store } = await open(t, link);
  await store.write(creation(1n));
  assert.equal(store.load().walBytes, statSync(`${file}-wal`).size);
  const locks = [lockForService(file), lockForService(link)] as const;
  assert.deepEqual(
    locks.map(({ isShared }) => isShared),
    [false, true],
  );
  for (const lock of locks) lock.release();
});

test('store that does not exist yet → its lock lies next to it, and the second lock is shared', async () => {
  const file = await freshFile();
  const first = lockForService(file);
  const second = lockForService(file);
  assert.deepEqual([first.isShared, second.isShared, existsSync(`${file}-service`)], [false, true, true]);
  second.release();
  first.release();
  assert.deepEqual([existsSync(`${file}-service`), existsSync(file)], [false, false]);
});

test('first of two locks is released → a third is shared with the second, and the last removes the file', async () => {
  const file = await freshFile();
  const [first, second] = [lockForService(file), lockForService(file)];
  first.release();
  const third = lockForService(file);
  assert.deepEqual([third.isShared, existsSync(`${file}-service`)], [true, true]);
  second.release();
  third.release();
  assert.equal(existsSync(`${file}-service`), false);
  const next = lockForService(file);
  assert.equal(next.isShared, false);
  next.release();
});

for (const isReplaced of [false, true])
  test(`file of a lock ${isReplaced ? 'replaced' : 'removed'} after its open and before its lock → the one at its path is locked`, async (t) => {
    const file = await freshFile();
    const last = lockForService(file);
    let third: ServiceLock | undefined;
    const { mock } = t.mock.method(
      DatabaseSync.prototype,
      'exec',
      function (this: DatabaseSync, sql: string) {
        mock.restore();
        // The file is open, and not locked yet.
        last.release();
        if (isReplaced) third = lockForService(file);
        this.exec(sql);
      },
    );
    const other = lockForService(file);
    const next = lockForService(file);
    assert.deepEqual([other.isShared, next.isShared], [isReplaced, true]);
    for (const lock of [third, other, next]) lock?.release();
    assert.equal(existsSync(`${file}-service`), false);
  });

test('the file of a lock cannot be removed → release does not throw', async () => {
  const file = await freshFile();
  const lock = lockForService(file);
  await rm(`${file}-service`);
  await mkdir(`${file}-service`);
  lock.release();
  assert.ok(existsSync(`${file}-service`));
});

test('closed store → its log is gone, and is measured as empty', async (t) => {
  const { store, close } = await open(t, await freshFile());
  await store.write(creation(1n));
  assert.ok(store.load().walBytes > 0);
  await close();
  assert.equal(store.load().walBytes, 0);
});

/** Reads the file over a separate connection. */
function look<T>(file: string, work: (db: DatabaseSync) => T): T {
  const db = openForReading(file);
  try {
    return work(db);
  } finally {
    db.close();
  }
}

function rowsOf(file: string, sql: string): readonly Record<string, unknown>[] {
  return look(file, (db) =>
    db
      .prepare(sql)
      .all()
      .map((row) => ({ ...row })),
  );
}

function countOf(file: string, table: string): unknown {
  return rowsOf(file, `SELECT count(*) AS count FROM ${table}`)[0]?.count;
}

/** Changes a closed file with SQL. */
function tamper(file: string, sql: string): void {
  const db = new DatabaseSync(file);
  db.exec(sql);
  db.close();
}

function create(id: number, name = `plant ${id}`, key: string | null = null): Write {
  return creation(BigInt(id), { name, idempotencyKey: key });
}

function remove(id: number): Write {
  return { kind: 'deletePlant', owner: 'alice', id: BigInt(id) };
}

function writeAll(store: Store, writes: readonly Write[]): Promise<Outcome[]> {
  return Promise.all(writes.map((write) => store.write(write)));
}

function range<T>(length: number, one: (index: number) => T): T[] {
  return Array.from({ length }, (_, index) => one(index));
}

function listAll(store: Store): Promise<PlantPage> {
  return store.listPlants('alice', { from: INT64_MIN, to: INT64_MAX }, upTo(100_000));
}

function isNotOpened(...words: readonly RegExp[]) {
  return (error: unknown): boolean =>
    error instanceof StoreNotOpened && words.every((word) => word.test(error.message));
}

describe('the file', () => {
  test('uses a write-ahead log and an fsync at every commit', async (t) => {
    const file = await freshFile();
    const { close } = await open(t, file);
    await close();
    const db = openForWriting(file);
    assert.deepEqual({ ...db.prepare('PRAGMA journal_mode').get() }, { journal_mode: 'wal' });
    assert.deepEqual({ ...db.prepare('PRAGMA synchronous').get() }, { synchronous: 2 });
    // An automatic checkpoint would hide its errors.
    assert.deepEqual({ ...db.prepare('PRAGMA wal_autocheckpoint').get() }, { wal_autocheckpoint: 0 });
    db.close();
    assert.deepEqual(rowsOf(file, 'PRAGMA journal_mode'), [{ journal_mode: 'wal' }]);
  });

  test('is read over read-only connections', async (t) => {
    const file = await freshFile();
    await open(t, file);
    look(file, (db) => assert.throws(() => db.exec('DELETE FROM plants'), /readonly/));
  });

  test('has tables that are STRICT', async (t) => {
    const file = await freshFile();
    await open(t, file);
    const tables = rowsOf(
      file,
      `SELECT name, strict FROM pragma_table_list
         WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`,
    );
    assert.deepEqual(tables, [
      { name: 'idempotency_keys', strict: 1 },
      { name: 'large_plants', strict: 1 },
      { name: 'migrations', strict: 1 },
      { name: 'plants', strict: 1 },
      { name: 'tokens', strict: 1 },
    ]);
  });

  test('is private, and so are its new folders, whatever the umask', async (t) => {
    const before = process.umask(0);
    t.after(() => process.umask(before));
    const folder = await freshFolder();
    const file = join(folder, 'a', 'b', 'plants.db');
    const { store } = await open(t, file);
    await store.write(create(1));
    const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);
    assert.deepEqual([join(folder, 'a'), join(folder, 'a', 'b')].map(modeOf), ['700', '700']);
    assert.deepEqual([file, `${file}-wal`, `${file}-shm`].map(modeOf), ['600', '600', '600']);
  });

  test('passes the integrity check after creates, deletes, keys and tokens, while open and after close', async (t) => {
    const file = await freshFile();
    const { store, close, clock } = await open(t, file);
    await writeAll(
      store,
      range(3_000, (id) => create(id, `${id}`.repeat(40), id % 3 === 0 ? `${id}` : undefined)),
    );
    await writeAll(
      store,
      range(1_500, (id) => remove(id * 2)),
    );
    const fields = { scopes, expiresAt: null, name: '' };
    const token = newToken(mintSecret(), 'alice', fields, clock.now);
    await writeAll(store, [
      { kind: 'createToken', token },
      { kind: 'revokeToken', id: token.id, at: clock.now },
    ]);
    const whole = [{ integrity_check: 'ok' }];
    assert.deepEqual(rowsOf(file, 'PRAGMA integrity_check'), whole);
    await close();
    assert.deepEqual(rowsOf(file, 'PRAGMA integrity_check'), whole);
    assert.equal(countOf(file, 'plants'), 1_500);
  });

  test('reuses its log, however many commits there are', async (t) => {
    const file = await freshFile();
    const { store } = await open(t, file);
    const name = 'x'.repeat(20_000);
    for (let id = 0; id < 500; id += 1) await store.write(create(id, name));
    assert.ok(statSync(file).size > 500 * name.length * 0.5, 'most of it has come to the file');
    assert.ok(statSync(`${file}-wal`).size < 500 * name.length * 0.5, 'the log was reused');
  });

  test('has the given name, even one with a special meaning in SQLite', async (t) => {
    const folder = await freshFolder();
    const before = process.cwd();
    process.chdir(folder);
    t.after(() => process.chdir(before));
    for (const name of [':memory:', 'file:plants.db', 'file:other.db?mode=memory', 'a%20b.db']) {
      const first = await open(t, name);
      assert.equal(await first.store.write(create(1, name)), 'created');
      await first.close();
      assert.deepEqual(first.fatal, []);
      assert.equal(statSync(join(folder, name)).mode & 0o777, 0o600);
      assert.equal(countOf(join(folder, name), 'plants'), 1);
    }
  });
});

test('filled in bulk while the log cannot be moved into the file → rejects, and names the log', async (t) => {
  const file = await freshFile();
  await (await open(t, file)).close();
  const bulk = await openBulk(`sqlite:${file}`, connections);
  t.after(() => bulk.close());
  using reader = openForReading(file);
  reader.exec('BEGIN; SELECT count(*) FROM plants');
  const plants = [plantRow(1n)];
  await assert.rejects(
    bulk.fill((filling) => filling.addPlants(plants)),
    { name: 'LeftInLog', message: new RegExp(`do not move it without ${file}-wal`) },
  );
  assert.equal(countOf(file, 'plants'), 1);
});

describe('a file that cannot be a store', () => {
  test('no database → not opened and not changed', async (t) => {
    const file = await freshFile();
    const text = 'id,name\n1,Black alder\n'.repeat(500);
    writeFileSync(file, text);
    await assert.rejects(open(t, file), isNotOpened(/not a database/, new RegExp(file)));
    assert.equal(readFileSync(file, 'utf8'), text);
  });

  test('folder, or in a folder that is a file → not opened, and the message says so', async (t) => {
    const folder = await freshFolder();
    const started = performance.now();
    await assert.rejects(open(t, folder), isNotOpened(new RegExp(folder)));
    const file = join(folder, 'file');
    writeFileSync(file, '');
    await assert.rejects(open(t, join(file, 'plants.db')), isNotOpened(new RegExp(join(file, 'plants.db'))));
    assert.ok(performance.now() - started < 8_000, 'it was waited for, as for a lock');
  });

  test('device → not opened, and the message says so', async (t) => {
    await assert.rejects(open(t, '/dev/null'), isNotOpened(/^\/dev\/null is not a regular file/));
  });

  test('circle of symbolic links → not opened, and the message says so', async (t) => {
    const file = await freshFile();
    await symlink(file, file);
    await assert.rejects(open(t, file), isNotOpened(/symbolic links form a loop/, new RegExp(file)));
  });

  test('one of two hard links to a file → not opened by any command', async (t) => {
    const file = await freshFile();
    await (await open(t, file)).close();
    await link(file, `${file}.snapshot`);
    for (const opening of [open(t, file), openBulk(`sqlite:${file}.snapshot`, connections)])
      await assert.rejects(opening, isNotOpened(/has another name too \(a hard link\)/));
  });

  test('created by a newer version → not opened and not changed', async (t) => {
    const file = await freshFile();
    await (await open(t, file)).close();
    tamper(file, "INSERT INTO migrations (name) VALUES ('9999-of-the-future.sql')");
    const before = readFileSync(file);
    await assert.rejects(open(t, file), isNotOpened(/newer version/, /9999-of-the-future\.sql/));
    assert.deepEqual(readFileSync(file), before);
  });

  test('database of another program → not opened and not changed', async (t) => {
    const file = await freshFile();
    tamper(file, 'CREATE TABLE plants (latin TEXT); INSERT INTO plants VALUES (1)');
    const before = readFileSync(file);
    await assert.rejects(open(t, file), isNotOpened(/another program/, new RegExp(file)));
    assert.deepEqual(readFileSync(file), before);
  });

  for (const table of ['plants', 'tokens', 'idempotency_keys']) {
    test(`without the table ${table} → not opened`, async (t) => {
      const file = await freshFile();
      await (await open(t, file)).close();
      tamper(file, `DROP TABLE ${table}`);
      await assert.rejects(open(t, file), isNotOpened(new RegExp(table), new RegExp(file)));
    });
  }

  for (const [what, ending] of [
    ['write-ahead log', '-wal'],
    ['rollback journal', '-journal'],
  ] as const)
    test(`file missing next to its ${what} → not opened, and ${ending} is kept`, async (t) => {
      const file = await freshFile();
      writeFileSync(`${file}${ending}`, 'the last writes');
      await assert.rejects(
        open(t, file),
        isNotOpened(
          new RegExp(`is missing, but .*plants\\.db${ending} is there`),
          /put that same file back/,
          new RegExp(`backup .* first move .*${ending} away`),
        ),
      );
      assert.equal(readFileSync(`${file}${ending}`, 'utf8'), 'the last writes');
      assert.equal(existsSync(file), false);
    });

  test('dangling link to a file that is missing next to its log → not opened, and the log is kept', async (t) => {
    const [file, link] = [await freshFile(), await freshFile()];
    await symlink(relative(dirname(link), file), link);
    writeFileSync(`${file}-wal`, 'the last writes');
    await assert.rejects(open(t, link), isNotOpened(/is missing, but/, new RegExp(`${file}-wal is there`)));
    assert.deepEqual(await readdir(dirname(file)), [`${basename(file)}-wal`]);
  });

  test('empty file next to its write-ahead log → not opened by any command, and the log is kept', async (t) => {
    const file = await freshFile();
    writeFileSync(file, '');
    writeFileSync(`${file}-wal`, 'the last writes');
    for (const opening of [open(t, file), openBulk(`sqlite:${file}`, connections)])
      await assert.rejects(opening, isNotOpened(/is empty, but .*plants\.db-wal is there/));
    assert.equal(readFileSync(`${file}-wal`, 'utf8'), 'the last writes');
  });

  test('empty file next to a rollback journal, as after a crash in the first start → opened', async (t) => {
    const file = await freshFile();
    writeFileSync(file, '');
    writeFileSync(`${file}-journal`, Buffer.alloc(512));
    await (await open(t, file)).close();
  });

  test('first page damaged → not opened', async (t) => {
    const file = await freshFile();
    await (await open(t, file)).close();
    overwrite(file, 100, Buffer.alloc(200, 0xa5));
    await assert.rejects(open(t, file), isNotOpened(/malformed/, new RegExp(file)));
  });
});

function overwrite(file: string, position: number, bytes: Buffer): void {
  const descriptor = openSync(file, 'r+');
  writeSync(descriptor, bytes, 0, bytes.length, position);
  closeSync(descriptor);
}

/** A store of 2,000 plants whose file has garbage in its middle third. */
async function damagedFile(t: TestContext): Promise<string> {
  const file = await freshFile();
  const { store, close } = await open(t, file);
  await writeAll(
    store,
    range(2_000, (id) => create(id, `${id} `.padEnd(300, 'x'))),
  );
  await close();
  const third = Math.floor(statSync(file).size / PAGE_BYTES / 3) * PAGE_BYTES;
  overwrite(file, third, Buffer.alloc(third, 0xa5));
  return file;
}

test('locked, or full → the reason has a remedy', async (t) => {
  const file = await freshFile();
  await (await open(t, file)).close();
  const [first, second] = [openForWriting(file, 0), openForWriting(file, 0)];
  first.exec('BEGIN IMMEDIATE');
  assert.match(reasonOfFailure(second, 'BEGIN IMMEDIATE'), /SQLite code 5\): another process writes to it/);
  first.exec('PRAGMA max_page_count = 1');
  assert.match(reasonOfFailure(first, 'CREATE TABLE t (a)'), /SQLite code 13\): free space/);
  for (const db of [first, second]) db.close();
});

function reasonOfFailure(db: DatabaseSync, sql: string): string {
  try {
    db.exec(sql);
    return 'no error';
  } catch (error: unknown) {
    return reasonOf(error);
  }
}

describe('a corrupt page found by the running store', () => {
  async function assertBroken({ store, fatal, close }: Opened, file: string): Promise<void> {
    assert.equal(fatal.length, 1);
    assert.ok(fatal[0] instanceof StoreUnavailable);
    assert.match(fatal[0].message, new RegExp(`${file}.*malformed`));
    await assert.rejects(listAll(store), StoreUnavailable);
    await assert.rejects(store.write(create(100_000)), StoreUnavailable);
    await assert.rejects(store.ping(), StoreUnavailable);
    assert.equal(fatal.length, 1);
    await close();
  }

  test('in a read → fatal, reported once', async (t) => {
    const file = await damagedFile(t);
    const opened = await open(t, file);
    await assert.rejects(listAll(opened.store), StoreUnavailable);
    await assertBroken(opened, file);
  });

  test('in a read in bulk → StoreDamaged, with the file', async (t) => {
    const file = await damagedFile(t);
    const bulk = await openBulk(`sqlite:${file}`, connections);
    t.after(() => bulk.close());
    await assert.rejects(
      bulk.read(['plants'], ({ plants }) => Array.fromAsync(plants())),
      (error) =>
        error instanceof StoreDamaged &&
        error.message.startsWith(`the store ${file} is damaged: database disk image is malformed`),
    );
  });

  test('in a write → fatal, reported once', async (t) => {
    const file = await damagedFile(t);
    const opened = await open(t, file);
    const writes = [opened.store.write(remove(1_000)), opened.store.write(create(5_000))];
    await Promise.all(writes.map((write) => assert.rejects(write, StoreUnavailable)));
    await assertBroken(opened, file);
  });
});

describe('a file that is gone from its path while the store is open', () => {
  /** Repeats a write until it rejects. */
  async function untilRejected(write: () => Promise<unknown>): Promise<void> {
    for (const begin = performance.now(); performance.now() - begin < PATIENCE_MS; ) await write();
  }

  for (const [what, change] of [
    ['removed', (file: string) => rm(file)],
    ['moved', (file: string) => rename(file, `${file}.old`)],
    [
      'replaced',
      async (file: string) => {
        await rename(file, `${file}.old`);
        await copyFile(`${file}.old`, file);
      },
    ],
    ['without its log, which was removed', (file: string) => rm(`${file}-wal`)],
    ['without its log, which was moved', (file: string) => rename(`${file}-wal`, `${file}.old`)],
    [
      'without its log, which another process made again',
      async (file: string) => {
        await rm(`${file}-wal`);
        writeFileSync(`${file}-wal`, '');
      },
    ],
    ['without the index of its log, which was removed', (file: string) => rm(`${file}-shm`)],
  ] as const)
    for (const [first, use] of [
      ['a write after a second', (store: Store) => untilRejected(() => store.write(create(2)))],
      ['a ping', (store: Store) => store.ping()],
    ] as const)
      test(`${what} → ${first} rejects, and the store fails`, async (t) => {
        const file = await freshFile();
        const { store, fatal } = await open(t, file);
        assert.equal(await store.write(create(1)), 'created');
        await store.ping();
        await change(file);
        await assert.rejects(use(store), { name: 'StoreUnavailable', message: /moved, replaced or removed/ });
        assert.equal(fatal.length, 1);
        await assert.rejects(store.write(create(3)), StoreUnavailable);
      });

  test('without its log → a command on the same store names the cause', async (t) => {
    const file = await freshFile();
    const { store } = await open(t, file);
    assert.equal(await store.write(create(1)), 'created');
    await rm(`${file}-wal`);
    const bulk = await openBulk(`sqlite:${file}`, connections);
    t.after(() => bulk.close());
    const message = /SQLite code 522\): .*its -wal removed while in use/;
    await assert.rejects(
      bulk.read(['plants'], ({ countPlants }) => countPlants()),
      { message },
    );
  });

  test('without its log → the stop saves what was acknowledged', async (t) => {
    const file = await freshFile();
    const { store, close } = await open(t, file);
    assert.equal(await store.write(create(1)), 'created');
    await rm(`${file}-wal`);
    await assert.rejects(store.ping(), StoreUnavailable);
    await close();
    const again = await open(t, file);
    assert.equal(await again.store.write(create(1)), 'idTaken');
  });

  test('by its close → a ping and a list reject, and the store has not failed', async (t) => {
    const { store, fatal, close } = await open(t, await freshFile());
    assert.equal(await store.write(create(1)), 'created');
    await close();
    await assert.rejects(store.ping(), { name: 'StoreUnavailable', message: /is closed/ });
    await assert.rejects(listAll(store), { name: 'StoreUnavailable', message: /is closed/ });
    assert.deepEqual(fatal, []);
  });
});

describe('pages', () => {
  test('show texts that look like JSON as strings', async (t) => {
    const file = await freshFile();
    const { store } = await open(t, file);
    await store.write(create(1, '{"a":[1]}'));
    await store.write(creation(2n, { name: '[]', tag: '{}' }));
    assert.equal((await listAll(store)).json, '[{"name":"{\\"a\\":[1]}"},{"name":"[]","tag":"{}"}]');
  });

  test('show the commit of another connection or program on the next read', async (t) => {
    const file = await freshFile();
    const { store } = await open(t, file);
    await store.write(create(1, 'Alder'));
    for (const _ of ['first read', 'from memory'])
      assert.equal((await listAll(store)).json, '[{"name":"Alder"}]');
    tamper(file, "UPDATE plants SET name = 'Black alder'");
    await nextTurn();
    assert.equal((await listAll(store)).json, '[{"name":"Black alder"}]');
  });

  test('in memory do not outlive a commit of another connection, in any phase of the event loop', async (t) => {
    const file = await freshFile();
    const { store } = await open(t, file);
    const other = openForWriting(file);
    t.after(() => other.close());
    const insert = other.prepare("INSERT INTO plants (owner, id, name) VALUES ('alice', ?, 'a plant')");
    for (let id = 0; id < 20; id += 1) {
      await nextTurn();
      assert.equal(parsePlants(await listAll(store)).length, id);
      // Resolves in the poll phase of the next iteration, as a request does: before its setImmediate callbacks.
      const arrival = stat(file);
      insert.run(id);
      await arrival;
      assert.equal(parsePlants(await listAll(store)).length, id + 1);
    }
  });
});

describe('idempotency keys', () => {
  /** Advances the timers of the store by a minute; other timers run in real time. */
  async function passMinute(t: TestContext, store: Store): Promise<void> {
    t.mock.timers.tick(60_000);
    // Runs after the work of the timer: one thread executes both in order.
    assert.equal(await store.write(remove(-1)), 'absent');
  }

  test('expire to the millisecond', async (t) => {
    const { store, clock } = await open(t, await freshFile());
    const first = create(1, 'key', 'key');
    await store.write(first);
    clock.now += DAY_MS - 1;
    assert.equal(await store.write(first), 'createdReplayed');
    clock.now += 1;
    assert.equal(await store.write(first), 'idTaken');
  });

  test('are deleted within a minute at an age of two days, and not before', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const file = await freshFile();
    const { store, clock } = await open(t, file);
    await writeAll(
      store,
      range(10, (id) => create(id, 'early', `early ${id}`)),
    );
    clock.now += DAY_MS / 2;
    await writeAll(
      store,
      range(5, (id) => create(10 + id, 'late', `late ${id}`)),
    );
    clock.now += DAY_MS * 1.5 - 1;
    await passMinute(t, store);
    assert.equal(countOf(file, 'idempotency_keys'), 15);
    clock.now += 1;
    await passMinute(t, store);
    assert.equal(countOf(file, 'idempotency_keys'), 5);
    clock.now += DAY_MS;
    await passMinute(t, store);
    assert.equal(countOf(file, 'idempotency_keys'), 0);
    assert.equal(countOf(file, 'plants'), 15);
  });

  test('any number is deleted in the same minute', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const file = await freshFile();
    const { store, clock } = await open(t, file);
    await writeAll(
      store,
      range(2_500, (id) => create(id, 'Alder', `key ${id}`)),
    );
    clock.now += 2 * DAY_MS;
    await passMinute(t, store);
    // Each batch deletes for a limited time. How many keys that are depends on the machine.
    await until(async () => {
      assert.equal(await store.write(remove(-1)), 'absent');
      return countOf(file, 'idempotency_keys') === 0;
    });
  });
});
