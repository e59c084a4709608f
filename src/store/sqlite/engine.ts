import { on } from 'node:events';
import { statSync } from 'node:fs';
import type { Worker } from 'node:worker_threads';
import { startThread } from '../../packaged-files.ts';
import { startKeyExpiry } from '../expired-keys-timer.ts';
import { createdStore } from '../migrations.ts';
import {
  type Engine,
  NothingStored,
  type Outcome,
  StatementRejected,
  type StoreOptions,
  StoreUnavailable,
  type Write,
} from '../store.ts';
import { watchFileIdentity, withoutLinks } from './connection.ts';
import { notOpened, reasonOf, type Severity, severityOf } from './errors.ts';
import { migrateSqlite } from './migrate.ts';
import { openReader } from './reader.ts';
import type { WriterMessage, WriterReply, WriterRequest } from './writer-thread.ts';

/**
 * Opens the embedded engine: one connection on this thread for reads, and one on the writer thread for
 * writes. Rejects with StoreNotOpened if the file cannot be opened.
 */
export async function openSqlite(
  file: string,
  {
    onFatal,
    now,
    keyDeletion,
    mustExist = false,
    onCreated = () => undefined,
    onTaskEnd = () => undefined,
  }: StoreOptions,
): Promise<Engine> {
  if (createdStore(await migrateSqlite(file, { mustExist }))) onCreated();
  let broken: StoreUnavailable | undefined;
  let checkpointFailures = 0;

  // Handles a fatal error. Rejects queued writes before it calls `onFatal`, which may end the process.
  function breakWith(
    reason: string,
    rejectQueued: (failure: StoreUnavailable) => void = () => undefined,
  ): StoreUnavailable {
    const isFirst = broken === undefined;
    broken ??= new StoreUnavailable(`the store ${file} failed: ${reason}`);
    rejectQueued(broken);
    if (isFirst) onFatal(broken);
    return broken;
  }

  function toStoreError(error: unknown): unknown {
    const severity = severityOf(error);
    return severity === 'rejected' ? error : failureOf({ severity, reason: reasonOf(error) });
  }

  function endCheckpoint(failure: string | undefined): void {
    if (failure !== undefined) checkpointFailures += 1;
    onTaskEnd('checkpoints', failure === undefined ? undefined : new StoreUnavailable(failure));
  }

  const writer = await startWriter(file, { breakWith, endCheckpoint });
  const reader = await openReader(file).catch(async (error: unknown) => {
    await writer.close();
    throw notOpened(file, error);
  });
  const walFile = `${withoutLinks(file)}-wal`;
  const whyMoved = watchFileIdentity(file, 0);
  const keyExpiry = keyDeletion && startKeyExpiry(deleteExpiredKeys, keyDeletion);

  // Deletes expired keys in batches. Requests one batch at a time, so that writes can run in between.
  async function deleteExpiredKeys(): Promise<void> {
    const reply = await writer.request({ kind: 'deleteExpiredKeys', now: now() });
    if (reply.kind === 'failure') throw failureOf(reply);
    if (reply.kind === 'deletedKeys' && reply.more) await deleteExpiredKeys();
  }

  function failureOf({ severity, reason }: { readonly severity: Severity; readonly reason: string }): Error {
    switch (severity) {
      case 'transient':
        return new NothingStored(reason);
      case 'uncertain':
        return new StoreUnavailable(reason);
      case 'fatal':
        return breakWith(reason);
      case 'rejected':
        return new StatementRejected(reason);
    }
  }

  async function read<T>(work: () => T): Promise<T> {
    if (broken !== undefined) throw broken;
    try {
      return work();
    } catch (error: unknown) {
      throw toStoreError(error);
    }
  }

  async function commit(batch: readonly Write[]): Promise<readonly Outcome[]> {
    if (broken !== undefined) throw broken;
    const reply = await writer.request({ kind: 'commit', batch, now: now() });
    reader.noteCommit();
    if (reply.kind === 'outcomes') return reply.outcomes;
    throw reply.kind === 'failure' ? failureOf(reply) : new StoreUnavailable('the store is closed');
  }

  return {
    commit,
    listPlants: (owner, range, limit) => read(() => reader.listPlants(owner, range, limit)),
    readLargePlant: (owner, range) => read(() => reader.readLargePlant(owner, range)),
    findToken: (digest) => read(() => reader.findToken(digest)),
    findTokenById: (id) => read(() => reader.findTokenById(id)),
    hasTokens: () => read(() => reader.hasTokens()),
    isEmpty: () => read(() => reader.isEmpty()),
    ping: async () => {
      const moved = whyMoved();
      if (moved !== undefined) throw breakWith(moved);
      return read(() => reader.ping());
    },
    load: () => ({
      connections: { idle: 0, busy: 0, waiting: 0 },
      walBytes: sizeOf(walFile),
      checkpointFailures,
      timelineRegressions: 0,
    }),
    close: async () => {
      keyExpiry?.end();
      reader.close();
      await writer.close();
    },
  };
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
}

interface Writer {
  request(request: WriterRequest): Promise<WriterReply>;
  close(): Promise<void>;
}

interface WriterEvents {
  breakWith(reason: string, rejectQueued: (failure: StoreUnavailable) => void): void;
  endCheckpoint(failure: string | undefined): void;
}

async function startWriter(file: string, { breakWith, endCheckpoint }: WriterEvents): Promise<Writer> {
  const worker = await startWorker(file);
  const waiting: PromiseWithResolvers<WriterReply>[] = [];
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  let closing = false;
  let failure: StoreUnavailable | undefined;

  function fail(reason: string): void {
    breakWith(reason, (broken) => {
      failure = broken;
      for (const { reject } of waiting.splice(0)) reject(broken);
    });
  }

  worker.on('message', (message: unknown) => {
    if (!isOfWriter(message)) return;
    if (message.kind === 'broken') fail(message.reason);
    else if (message.kind === 'checkpointed') endCheckpoint(message.failure);
    else if (message.kind !== 'ready') waiting.shift()?.resolve(message);
  });
  worker.on('error', (error: unknown) => fail(`the writer thread ended: ${reasonOf(error)}`));
  worker.on('exit', (code) => {
    if (!closing) fail(`the writer thread ended with code ${code}`);
  });

  function request(request: WriterRequest): Promise<WriterReply> {
    if (failure !== undefined) return Promise.reject(failure);
    const reply = Promise.withResolvers<WriterReply>();
    worker.postMessage(request);
    waiting.push(reply);
    return reply.promise;
  }

  async function close(): Promise<void> {
    closing = true;
    // Waits for the reply to `close` or the end of the thread, whichever comes first: an ended thread never
    // replies.
    await Promise.race([request({ kind: 'close' }).catch(() => undefined), ended]);
    await worker.terminate();
    await ended;
  }

  return { request, close };
}

async function startWorker(file: string): Promise<Worker> {
  try {
    const worker = startThread('store/sqlite/writer-thread', file);
    await untilReady(worker);
    return worker;
  } catch (error: unknown) {
    throw notOpened(file, error);
  }
}

async function untilReady(worker: Worker): Promise<void> {
  for await (const [message] of on(worker, 'message')) if (isOfWriter(message)) return;
}

/**
 * True for a message of the writer thread. Under `node --watch`, Node reports imported files on the same
 * channel.
 */
function isOfWriter(message: unknown): message is WriterMessage {
  return typeof message === 'object' && message !== null && 'kind' in message;
}
