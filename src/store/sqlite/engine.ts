import { statSync } from 'node:fs';
import { startKeyExpiry } from '../expired-keys-timer.ts';
import { isNewStore } from '../migrations.ts';
import {
  type Engine,
  NothingStored,
  type Outcome,
  StatementRejected,
  type StoreOptions,
  StoreUnavailable,
  type Write,
} from '../store.ts';
import { notOpened, reasonOf, type Severity, severityOf, storeFailed } from './errors.ts';
import { migrateSqlite } from './migrate.ts';
import { openReader } from './reader.ts';
import { startWriter } from './writer-client.ts';
import type { WriterReply } from './writer-thread.ts';

/**
 * Opens the embedded engine: one connection on this thread for reads, and one on the writer thread for
 * writes. Rejects with StoreNotOpened if the file cannot be opened.
 */
export async function openSqlite(
  file: string,
  { onFatal, now, keyDeletion, onlyTokens, onCreated, onLogLeft, onTaskEnd, ...options }: StoreOptions,
): Promise<Engine> {
  if (isNewStore(await migrateSqlite(file, options))) onCreated?.();
  /** Reason why the store no longer works: the first fatal error, or its close. */
  let broken: StoreUnavailable | undefined;
  let checkpointFailures = 0;

  /** Handles a fatal error. Returns the error of all later calls. */
  function breakWith(reason: string): StoreUnavailable {
    if (broken !== undefined) return broken;
    broken = storeFailed(file, reason);
    onFatal(broken);
    return broken;
  }

  function endCheckpoint(failure: string | undefined): void {
    if (failure !== undefined) checkpointFailures += 1;
    onTaskEnd?.('checkpoints', failure === undefined ? undefined : new StoreUnavailable(failure));
  }

  const writer = await startWriter(file, { breakWith, endCheckpoint });
  const reader = await openReader(file, onlyTokens).catch(async (error: unknown) => {
    await writer.close();
    throw notOpened(file, error);
  });
  const keyExpiry = keyDeletion && startKeyExpiry(deleteExpiredKeys, keyDeletion);

  // Deletes expired keys in batches. Requests one batch at a time, so that writes can run in between.
  async function deleteExpiredKeys(): Promise<void> {
    let reply: WriterReply;
    do {
      reply = await writer.request({ kind: 'deleteExpiredKeys', now: now() });
      if (reply.kind === 'failure') throw failureOf(reply);
    } while (reply.kind === 'deletedKeys' && reply.more);
  }

  function failureOf({ severity, reason }: { readonly severity: Severity; readonly reason: string }): Error {
    const failure = `the store ${file} failed: ${reason}`;
    switch (severity) {
      case 'transient':
        return new NothingStored(failure);
      case 'uncertain':
        return new StoreUnavailable(failure);
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
      const severity = severityOf(error);
      throw severity === 'rejected' ? error : failureOf({ severity, reason: reasonOf(error) });
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
    hasValidTokens: (at) => read(() => reader.hasValidTokens(at)),
    isEmpty: () => read(() => reader.isEmpty()),
    ping: async () => {
      const moved = reader.files.whyMoved();
      if (moved !== undefined) throw breakWith(moved);
      return read(() => reader.ping());
    },
    load: () => ({
      connections: { idle: 0, busy: 0, waiting: 0 },
      walBytes: sizeOf(reader.files.log),
      checkpointFailures,
      timelineRegressions: 0,
    }),
    close: async () => {
      // From here on SQLite may remove the log, and no error is fatal: every write has its outcome.
      broken ??= new StoreUnavailable(`the store ${file} is closed`);
      keyExpiry?.end();
      await writer.close();
      const left = reader.close();
      if (left !== undefined) onLogLeft?.(left);
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
