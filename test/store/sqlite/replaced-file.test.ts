import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, rename, rm, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { INT64_MAX, INT64_MIN } from '../../../src/plant.ts';
import type { Bulk } from '../../../src/store/bulk-store.ts';
import { openBulk, openStore } from '../../../src/store/open-engine.ts';
import { type LogLeft, type Store, StoreNotOpened } from '../../../src/store/store.ts';
import { connections, freshFolder } from '../../support/engines.ts';
import { plantRow } from '../../support/plants.ts';
import { create, failTest, parsePlants, upTo } from '../../support/store-setup.ts';

interface Opened {
  readonly store: Store;
  /** Reports of the store at its close. */
  readonly left: readonly LogLeft[];
  close(): Promise<void>;
}

async function open(t: TestContext, file: string): Promise<Opened> {
  const left: LogLeft[] = [];
  const store = await openStore(`sqlite:${file}`, {
    connections,
    onFatal: () => undefined,
    onLogLeft: (log) => left.push(log),
    now: Date.now,
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= store.close());
  t.after(close);
  return { store, left, close };
}

async function namesIn(file: string): Promise<readonly string[]> {
  const { store, close } = await openQuietly(file);
  const page = await store.listPlants('alice', { from: INT64_MIN, to: INT64_MAX }, upTo(1_000));
  await close();
  return parsePlants(page).map(({ name }) => name);
}

async function openQuietly(file: string) {
  const store = await openStore(`sqlite:${file}`, { connections, onFatal: failTest, now: Date.now });
  return { store, close: () => store.close() };
}

/** Creates a store with the plant 0 and a backup of it. The store is then opened, and the plant 1 created. */
async function prepare(t: TestContext, file?: string) {
  const place = file ?? join(await freshFolder(), 'plants.db');
  const backup = join(await freshFolder(), 'backup.db');
  const { store, close } = await openQuietly(place);
  await store.write(create(0n, { name: 'zero' }));
  await close();
  await copyFile(place, backup);
  const opened = await open(t, place);
  await opened.store.write(create(1n, { name: 'one' }));
  return { ...opened, file: place, backup };
}

async function replace(file: string, backup: string): Promise<void> {
  await rename(file, `${file}.old`);
  await copyFile(backup, file);
}

/** Puts the old file and its log back, as the report says. */
async function putBack(file: string, log: string): Promise<void> {
  await rename(`${file}.old`, file);
  await rename(log, `${file}-wal`);
}

describe('database file that is replaced while the store is open', () => {
  for (const [what, notice] of [
    ['and a ping notices it', (store: Store) => assert.rejects(store.ping())],
    ['and a write notices it', (store: Store) => assert.rejects(store.write(create(2n, { name: 'two' })))],
    ['and nothing notices it before the close', async () => undefined],
  ] as const)
    test(`${what} → the new file stays as it is, and the log is kept for the old one`, async (t) => {
      const { store, left, close, file, backup } = await prepare(t);
      await replace(file, backup);
      await notice(store);
      await close();
      assert.deepEqual(readFileSync(file), readFileSync(backup));
      assert.deepEqual(
        [existsSync(`${file}-wal`), existsSync(`${file}-shm`), existsSync(`${file}-wal.1`)],
        [false, false, true],
      );
      assert.deepEqual(
        left.map(({ file, isSeparated }) => [file, isSeparated]),
        [[`${file}-wal.1`, true]],
      );
      assert.deepEqual(await namesIn(file), ['zero']);
      await rm(file);
      await putBack(file, `${file}-wal.1`);
      assert.deepEqual((await namesIn(file)).slice(0, 2), ['zero', 'one']);
    });

  test('whose log is the only copy, since it was overwritten by a rename → the log is kept', async (t) => {
    const { left, close, file, backup } = await prepare(t);
    await rename(backup, file);
    const log = statSync(`${file}-wal`).ino;
    await close();
    assert.deepEqual(
      [statSync(`${file}-wal.1`).ino, left.length, existsSync(`${file}-wal`)],
      [log, 1, false],
    );
  });

  test('next to a log that was kept before → both are kept', async (t) => {
    const { left, close, file, backup } = await prepare(t);
    writeFileSync(`${file}-wal.1`, 'kept before');
    await replace(file, backup);
    await close();
    assert.equal(readFileSync(`${file}-wal.1`, 'utf8'), 'kept before');
    assert.equal(left[0]?.file, `${file}-wal.2`);
  });

  test('with its log, and another store is open there → its log is not touched', async (t) => {
    const { left, close, file, backup } = await prepare(t);
    const old = join(await freshFolder(), 'plants.db');
    for (const ending of ['', '-wal', '-shm']) await rename(`${file}${ending}`, `${old}${ending}`);
    await copyFile(backup, file);
    const other = await open(t, file);
    await other.store.write(create(3n, { name: 'three' }));
    const log = statSync(`${file}-wal`).ino;
    await close();
    assert.deepEqual([left, statSync(`${file}-wal`).ino], [[], log]);
    await other.store.ping();
    await other.store.write(create(4n, { name: 'four' }));
    await other.close();
    assert.deepEqual(await namesIn(file), ['zero', 'three', 'four']);
    assert.deepEqual(await namesIn(old), ['zero', 'one']);
  });

  test('and two processes had it open → the first keeps the log, the second changes nothing', async (t) => {
    const first = await prepare(t);
    const { file, backup } = first;
    const second = await open(t, file);
    await second.store.write(create(2n, { name: 'two' }));
    await replace(file, backup);
    await first.close();
    const third = await open(t, file);
    await third.store.write(create(3n, { name: 'three' }));
    await second.close();
    assert.deepEqual([first.left.length, second.left.length], [1, 0]);
    await third.close();
    assert.deepEqual(await namesIn(file), ['zero', 'three']);
    await rm(file);
    await putBack(file, `${file}-wal.1`);
    assert.deepEqual(await namesIn(file), ['zero', 'one', 'two']);
  });

  test('behind a symbolic link → the log next to the file is kept', async (t) => {
    const file = join(await freshFolder(), 'plants.db');
    const link = join(await freshFolder(), 'link.db');
    await symlink(file, link);
    const { left, close, backup } = await prepare(t, link);
    await replace(file, backup);
    await close();
    assert.equal(left[0]?.file, `${file}-wal.1`);
    assert.deepEqual(await namesIn(file), ['zero']);
  });

  test('by a link that leads elsewhere now → the old file gets its log', async (t) => {
    const file = join(await freshFolder(), 'plants.db');
    const link = join(await freshFolder(), 'link.db');
    await symlink(file, link);
    const { store, left, close, backup } = await prepare(t, link);
    await rm(link);
    await symlink(backup, link);
    await assert.rejects(store.ping());
    await close();
    assert.deepEqual([left, existsSync(`${file}-wal`)], [[], false]);
    assert.deepEqual([await namesIn(file), await namesIn(link)], [['zero', 'one'], ['zero']]);
  });

  test('and its log cannot be renamed → the report says to move it away', async (t) => {
    const short = join(await freshFolder(), 'plants.db');
    await (await openQuietly(short)).close();
    // Leaves room for -wal, but not for -wal.1.
    const file = join(dirname(short), 'x'.repeat(251));
    await rename(short, file);
    const { left, close, backup } = await prepare(t, file);
    await replaceFrom(join(await freshFolder(), 'old.db'), file, backup);
    await close();
    assert.deepEqual(
      left.map(({ file, isSeparated }) => [file, isSeparated]),
      [[`${file}-wal`, true]],
    );
    assert.match(left[0]?.reason ?? '', /ENAMETOOLONG.*move it away/);
  });
});

async function replaceFrom(old: string, file: string, backup: string): Promise<void> {
  await rename(file, old);
  await copyFile(backup, file);
}

test('database file that is missing at the close → its log is kept and reported, and no store is created', async (t) => {
  const { store, left, close, file } = await prepare(t);
  const log = statSync(`${file}-wal`).ino;
  await rename(file, `${file}.old`);
  await assert.rejects(store.ping());
  await close();
  assert.deepEqual(
    left.map(({ file, isSeparated }) => [file, isSeparated]),
    [[`${file}-wal`, true]],
  );
  assert.equal(statSync(`${file}-wal`).ino, log);
  await assert.rejects(openQuietly(file), StoreNotOpened);
  await rename(`${file}.old`, file);
  assert.deepEqual(await namesIn(file), ['zero', 'one']);
});

describe('bulk write to a file that is gone from its path', () => {
  const writes: Readonly<Record<string, (bulk: Bulk) => Promise<unknown>>> = {
    savePlants: (bulk) => bulk.savePlants([plantRow(5n)], 'fail'),
    fill: (bulk) => bulk.fill((filling) => filling.addPlants([plantRow(5n)])),
  };
  for (const [name, write] of Object.entries(writes))
    for (const [what, change] of [
      ['removed', (file: string) => rm(file)],
      ['moved', (file: string) => rename(file, `${file}.old`)],
      ['replaced', (file: string) => replace(file, `${file}.backup`)],
      ['without its log, which was moved', (file: string) => rename(`${file}-wal`, `${file}.old`)],
      ['without the index of its log, which was removed', (file: string) => rm(`${file}-shm`)],
    ] as const)
      test(`${name}, ${what} → rejects`, async () => {
        const file = join(await freshFolder(), 'plants.db');
        await (await openQuietly(file)).close();
        await copyFile(file, `${file}.backup`);
        const left: LogLeft[] = [];
        const bulk = await openBulk(`sqlite:${file}`, connections, (log) => left.push(log));
        await bulk.savePlants([], 'fail');
        await change(file);
        const message = new RegExp(`${basename(file)}(-wal|-shm)? was moved, replaced or removed`);
        await assert.rejects(write(bulk), { name: 'StoreUnavailable', message });
        await bulk.close();
        if (what !== 'replaced') return;
        assert.deepEqual(readFileSync(file), readFileSync(`${file}.backup`));
        assert.deepEqual(
          left.map(({ file }) => file),
          [`${file}-wal.1`],
        );
      });

  test('before the first write → rejects, and no file is created', async () => {
    const file = join(await freshFolder(), 'plants.db');
    await (await openQuietly(file)).close();
    const bulk = await openBulk(`sqlite:${file}`, connections);
    await rename(file, `${file}.old`);
    for (const write of Object.values(writes))
      await assert.rejects(write(bulk), { name: 'StoreUnavailable', message: /moved, replaced or removed/ });
    await bulk.close();
    assert.deepEqual(await readdir(dirname(file)), ['plants.db.old']);
  });

  test('the folder of the file is moved → rejects', async () => {
    const folder = await freshFolder();
    const file = join(folder, 'in', 'plants.db');
    await mkdir(dirname(file));
    await (await openQuietly(file)).close();
    const bulk = await openBulk(`sqlite:${file}`, connections);
    await bulk.savePlants([], 'fail');
    await rename(dirname(file), join(folder, 'moved'));
    await assert.rejects(bulk.savePlants([plantRow(5n)], 'fail'), { name: 'StoreUnavailable' });
    await bulk.close();
  });
});
