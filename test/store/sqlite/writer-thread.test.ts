import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { linkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, type TestContext, test } from 'node:test';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import type { Worker } from 'node:worker_threads';
import { openStore } from '../../../src/store/open-engine.ts';
import {
  CHARACTERS_BETWEEN_CHECKPOINTS,
  LOG_LEFT_BYTES,
  openForWriting,
  REPEATED_LOCK_TIMEOUT_MS,
  WRITE_LOCK_TIMEOUT_MS,
} from '../../../src/store/sqlite/connection.ts';
import { REQUESTS_BETWEEN_CHECKPOINTS, type WriterMessage } from '../../../src/store/sqlite/writer-thread.ts';
import { NothingStored, StoreNotOpened, StoreUnavailable } from '../../../src/store/store.ts';
import { connections, freshFolder } from '../../support/engines.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { create, createOnce } from '../../support/store-setup.ts';

/** A store on a file, which closes after the test. Fatal errors are collected. */
async function open(t: TestContext, file: string) {
  const fatal: Error[] = [];
  const onFatal = (error: Error): unknown => fatal.push(error);
  const store = await openStore(`sqlite:${file}`, { connections, onFatal, now: Date.now });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => (closing ??= store.close());
  t.after(close);
  return { store, fatal, close };
}

async function freshFile(): Promise<string> {
  return join(await freshFolder(), 'plants.db');
}

/** Collects the threads that start during the test. Calls `onStart` with each. */
function gatherThreads(
  t: TestContext,
  onStart: (thread: Worker) => void = () => undefined,
): readonly Worker[] {
  const threads: Worker[] = [];
  const gather = (thread: Worker): void => {
    threads.push(thread);
    onStart(thread);
  };
  process.on('worker', gather);
  t.after(() => process.off('worker', gather));
  return threads;
}

test('messages of Node on the channel of the writer thread (`node --watch`) → ignored', async (t) => {
  const ofNode = [{ 'watch:import': ['file:///imported.ts'] }, 'text', null];
  const sendAll = (thread: Worker): void => {
    for (const message of ofNode) thread.emit('message', message);
  };
  const threads = gatherThreads(t, sendAll);
  const { store, fatal } = await open(t, await freshFile());
  let pending = true;
  const outcome = store.write(create(1n)).finally(() => {
    pending = false;
  });
  while (pending) {
    threads.forEach(sendAll);
    await nextTurn();
  }
  assert.equal(await outcome, 'created');
  assert.deepEqual([threads.length, fatal], [1, []]);
});

test('a reader let the log grow → its file is cut to LOG_LEFT_BYTES after a checkpoint', async (t) => {
  const file = await freshFile();
  const { store } = await open(t, file);
  using reader = new DatabaseSync(file);
  reader.exec('BEGIN; SELECT count(*) FROM plants');
  using writer = openForWriting(file, PATIENCE_MS);
  writer.exec('PRAGMA synchronous = OFF; CREATE TABLE filler (content BLOB)');
  const filler = writer.prepare('INSERT INTO filler VALUES (zeroblob(?))');
  for (let rest = 2 * LOG_LEFT_BYTES; rest > 0; rest -= LOG_LEFT_BYTES / 4) filler.run(LOG_LEFT_BYTES / 4);
  reader.exec('COMMIT');
  for (let id = 1n; id <= REQUESTS_BETWEEN_CHECKPOINTS; id += 1n) await store.write(create(id));
  assert.ok(store.load().walBytes > 2 * LOG_LEFT_BYTES);
  await store.write(create(0n));
  assert.equal(store.load().walBytes, LOG_LEFT_BYTES);
});

test('long plants → a checkpoint empties the log after CHARACTERS_BETWEEN_CHECKPOINTS', async (t) => {
  const { store } = await open(t, await freshFile());
  const name = 'x'.repeat(CHARACTERS_BETWEEN_CHECKPOINTS / 4);
  for (let id = 1n; id <= 12n; id += 1n) await store.write(create(id, { name }));
  assert.ok(store.load().walBytes < 2 * CHARACTERS_BETWEEN_CHECKPOINTS, `${store.load().walBytes} bytes`);
});

test('short plants after long ones → no further checkpoint before its own limit is reached', async (t) => {
  let checkpoints = 0;
  gatherThreads(t, (thread) => {
    thread.on('message', ({ kind }: WriterMessage) => {
      if (kind === 'checkpointed') checkpoints += 1;
    });
  });
  const { store, close } = await open(t, await freshFile());
  const name = 'x'.repeat(CHARACTERS_BETWEEN_CHECKPOINTS / 4);
  for (let id = 1n; id <= 4n; id += 1n) await store.write(create(id, { name }));
  for (let id = 5n; id <= 14n; id += 1n) await store.write(create(id));
  // Messages arrive in their order, so that those of all writes are counted.
  await close();
  assert.equal(checkpoints, 1);
});

test('another program keeps the write lock → later writes wait a shorter time, until one succeeds', async (t) => {
  const file = await freshFile();
  const { store, fatal } = await open(t, file);
  using other = new DatabaseSync(file);
  async function waitInVain(id: bigint): Promise<number> {
    const begun = performance.now();
    await assert.rejects(store.write(create(id)), NothingStored);
    return performance.now() - begun;
  }
  other.exec('BEGIN IMMEDIATE');
  assert.ok((await waitInVain(1n)) > 0.9 * WRITE_LOCK_TIMEOUT_MS);
  assert.ok((await waitInVain(2n)) < 0.9 * WRITE_LOCK_TIMEOUT_MS);
  other.exec('ROLLBACK');
  assert.equal(await store.write(create(3n)), 'created');
  other.exec('BEGIN IMMEDIATE');
  const waiting = store.write(create(4n));
  await delay(1.5 * REPEATED_LOCK_TIMEOUT_MS);
  other.exec('ROLLBACK');
  assert.equal(await waiting, 'created');
  assert.deepEqual(fatal, []);
});

test('another program commits while a creation with a key waits → created', async (t) => {
  const file = await freshFile();
  const { store, fatal } = await open(t, file);
  using other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE; INSERT INTO plants (owner, id, name) VALUES ('bob', 1, 'Birch')");
  // The transaction of a creation with a key begins with a read.
  const waiting = store.write(createOnce(2n, 'key'));
  await delay(REPEATED_LOCK_TIMEOUT_MS);
  other.exec('COMMIT');
  assert.equal(await waiting, 'created');
  assert.deepEqual(fatal, []);
});

describe('a writer thread that ends', () => {
  test('fails the store once: pending and later writes are rejected, and close works', async (t) => {
    const threads = gatherThreads(t);
    const { store, fatal, close } = await open(t, await freshFile());
    await store.write(create(1n));
    const [thread] = threads;
    assert.ok(thread !== undefined && threads.length === 1);
    const rejected = assert.rejects(store.write(create(2n)), StoreUnavailable);
    await thread.terminate();
    await rejected;
    await assert.rejects(store.write(create(3n)), StoreUnavailable);
    assert.equal(fatal.length, 1);
    assert.match(String(fatal[0]), /writer thread ended/);
    await close();
  });

  test('by an uncaught error → fails the store once, with the error', async (t) => {
    const threads = gatherThreads(t);
    const { fatal, close } = await open(t, await freshFile());
    const [thread] = threads;
    assert.ok(thread !== undefined);
    const ended = new Promise((resolve) => thread.once('exit', resolve));
    thread.postMessage(null);
    assert.equal(await ended, 1);
    assert.deepEqual(
      fatal.map(({ message }) => /the writer thread ended: .*null/.test(message)),
      [true],
    );
    await close();
  });

  test('rejects pending writes even when onFatal throws', async () => {
    const script = `
      import { openStore } from ${JSON.stringify(new URL('../../../src/store/open-engine.ts', import.meta.url))};
      const threads = [];
      process.on('worker', (thread) => threads.push(thread));
      process.on('uncaughtException', () => console.log('thrown'));
      const onFatal = () => { throw new Error('thrown by onFatal'); };
      const store = await openStore('sqlite:${await freshFile()}', { onFatal, now: Date.now });
      const write = () => store.write({ kind: 'deletePlant', owner: 'alice', id: 1n }).then(write);
      setTimeout(() => threads[0].terminate());
      setTimeout(() => process.exit(), ${PATIENCE_MS});
      await write().catch(({ name }) => console.log(name));
      process.exit();`;
    const program = join(await freshFolder(), 'program.mjs');
    writeFileSync(program, script);
    const { stdout } = spawnSync(process.execPath, [program], { encoding: 'utf8' });
    assert.deepEqual(new Set(stdout.trim().split('\n')), new Set(['StoreUnavailable', 'thrown']));
  });
});

test('the file cannot be opened for reads → the writer thread has ended when the store is rejected', async (t) => {
  const file = await freshFile();
  const events: string[] = [];
  const threads = gatherThreads(t, (thread) => {
    // Comes when the thread has opened the file. Files with a second name are rejected.
    thread.once('message', () => linkSync(file, `${file}-2`));
    thread.once('exit', () => events.push('exit'));
  });
  t.after(() => Promise.all(threads.map((thread) => thread.terminate())));
  await assert.rejects(open(t, file), StoreNotOpened);
  assert.deepEqual([threads.length, events], [1, ['exit']]);
});
