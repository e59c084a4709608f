import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import { digestPlant } from '../../plant.ts';
import { LAST_USE_STEP_MS } from '../../token.ts';
import { charactersIn, toReplay } from '../rows.ts';
import { KEY_DELETION_AGE_MS, KEY_LIFETIME_MS, type Outcome, type Write } from '../store.ts';
import {
  CHARACTERS_BETWEEN_CHECKPOINTS,
  inTransaction,
  openForWriting,
  REPEATED_LOCK_TIMEOUT_MS,
  WRITE_LOCK_TIMEOUT_MS,
} from './connection.ts';
import { isLocked, reasonOf, type Severity, severityOf } from './errors.ts';
import { checkpoint } from './files/close-store.ts';
import { watchFileIdentity } from './files/file-identity.ts';
import { prepareDeletePlant, prepareInsertPlant, prepareInsertToken } from './statements.ts';

/** A request to the writer thread. Times are milliseconds since the epoch. */
export type WriterRequest =
  | { readonly kind: 'commit'; readonly batch: readonly Write[]; readonly now: number }
  | { readonly kind: 'deleteExpiredKeys'; readonly now: number }
  | { readonly kind: 'close' };

/** A reply of the writer thread: one for each request, in the order of requests. */
export type WriterReply =
  | { readonly kind: 'outcomes'; readonly outcomes: readonly Outcome[] }
  /** `more` is true if there may be more expired keys. */
  | { readonly kind: 'deletedKeys'; readonly more: boolean }
  | { readonly kind: 'failure'; readonly severity: Severity; readonly reason: string }
  | { readonly kind: 'closed' };

/**
 * A message of the writer thread: a reply or an event. Events are `ready` once, and after each checkpoint `checkpointed`,
 * or `broken` if its error is fatal.
 */
export type WriterMessage =
  | WriterReply
  | { readonly kind: 'ready' }
  | { readonly kind: 'checkpointed'; readonly failure: string | undefined }
  | { readonly kind: 'broken'; readonly reason: string };

export const REQUESTS_BETWEEN_CHECKPOINTS = 64;

/** Milliseconds after which the writer looks again whether its log was replaced. */
const LOG_CHECK_MS = 1_000;

/** Milliseconds for which expired keys are deleted at once. Writes wait for the end, and for the commit. */
export const KEY_DELETION_MS = 2;
/** Max expired keys that one statement deletes, a part of these milliseconds. */
const KEYS_IN_STATEMENT = 50;

if (parentPort !== null) serve(parentPort, String(workerData));

function serve(port: NonNullable<typeof parentPort>, file: string): void {
  const db = openForWriting(file);
  const apply = createApply(db);
  const deleteSomeKeys = db.prepare(
    `DELETE FROM idempotency_keys WHERE (owner, key) IN
       (SELECT owner, key FROM idempotency_keys WHERE first_used_at <= ? LIMIT ${KEYS_IN_STATEMENT})`,
  );
  const files = watchFileIdentity(file, LOG_CHECK_MS);
  let requests = 0;
  let characters = 0;

  let lockTimeoutMs = WRITE_LOCK_TIMEOUT_MS;

  function reply(request: WriterRequest): WriterReply {
    let hasWaited = false;
    try {
      return execute(request);
    } catch (error: unknown) {
      hasWaited = isLocked(error);
      return { kind: 'failure', severity: severityOf(error), reason: reasonOf(error) };
    } finally {
      setLockTimeout(hasWaited ? REPEATED_LOCK_TIMEOUT_MS : WRITE_LOCK_TIMEOUT_MS);
    }
  }

  function setLockTimeout(ms: number): void {
    if (ms === lockTimeoutMs || !db.isOpen) return;
    db.exec(`PRAGMA busy_timeout = ${ms}`);
    lockTimeoutMs = ms;
  }

  function execute(request: WriterRequest): WriterReply {
    const unsafe = request.kind === 'close' ? undefined : files.whyIndexMoved();
    if (unsafe !== undefined) return { kind: 'failure', severity: 'fatal', reason: unsafe };
    switch (request.kind) {
      case 'commit': {
        const outcomes = inTransaction(db, () => request.batch.map((write) => apply(write, request.now)));
        const reason = files.whyMoved();
        return reason === undefined
          ? { kind: 'outcomes', outcomes }
          : { kind: 'failure', severity: 'fatal', reason };
      }
      case 'deleteExpiredKeys':
        return { kind: 'deletedKeys', more: inTransaction(db, () => deleteKeys(request.now)) };
      case 'close':
        emptyLog();
        db.close();
        return { kind: 'closed' };
    }
  }

  /** Deletes expired keys. Returns whether there may be more. */
  function deleteKeys(now: number): boolean {
    const end = performance.now() + KEY_DELETION_MS;
    let deleted: number;
    do deleted = changesOf(deleteSomeKeys, now - KEY_DELETION_AGE_MS);
    while (deleted === KEYS_IN_STATEMENT && performance.now() < end);
    return deleted === KEYS_IN_STATEMENT;
  }

  // Runs a checkpoint after the reply is sent, so that the request does not wait for it. After a transient
  // error, the next checkpoint repeats the work.
  function checkpointAndReport(): void {
    requests = 0;
    characters = 0;
    try {
      checkpoint(db, files);
      send({ kind: 'checkpointed', failure: undefined });
    } catch (error: unknown) {
      const reason = reasonOf(error);
      send(
        severityOf(error) === 'fatal'
          ? { kind: 'broken', reason }
          : { kind: 'checkpointed', failure: reason },
      );
    }
  }

  // The reader closes after this connection. It would do this work on the main thread, and reports an error.
  function emptyLog(): void {
    try {
      checkpoint(db, files);
    } catch {}
  }

  function send(message: WriterMessage): void {
    port.postMessage(message);
  }

  send({ kind: 'ready' });
  port.on('message', (request: WriterRequest) => {
    send(reply(request));
    requests += 1;
    if (request.kind === 'commit') characters += textIn(request.batch);
    if (request.kind === 'close') port.close();
    else if (requests >= REQUESTS_BETWEEN_CHECKPOINTS || characters >= CHARACTERS_BETWEEN_CHECKPOINTS)
      checkpointAndReport();
  });
}

function textIn(batch: readonly Write[]): number {
  return batch.reduce((sum, write) => (write.kind === 'createPlant' ? sum + charactersIn(write) : sum), 0);
}

function createApply(db: DatabaseSync): (write: Write, now: number) => Outcome {
  const insertPlant = prepareInsertPlant(db);
  const insertToken = prepareInsertToken(db);
  const deletePlant = prepareDeletePlant(db);
  // Ignores keys with the outcome 'idTaken': earlier versions of the service stored the keys of failed
  // creations.
  const findKey = db.prepare(
    `SELECT digest FROM idempotency_keys
      WHERE owner = ? AND key = ? AND outcome = 'created' AND first_used_at > ?`,
  );
  const saveKey = db.prepare(
    `INSERT OR REPLACE INTO idempotency_keys (owner, key, digest, outcome, first_used_at)
       VALUES (?, ?, ?, 'created', ?)`,
  );
  const revokeToken = db.prepare('UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?');
  const recordTokenUse = db.prepare(
    `UPDATE tokens SET last_used_at = ?1
       WHERE id = ?2 AND (last_used_at IS NULL OR abs(?1 - last_used_at) >= ${LAST_USE_STEP_MS})`,
  );

  function createPlant(write: Extract<Write, { kind: 'createPlant' }>, now: number): Outcome {
    const { owner, idempotencyKey } = write;
    if (idempotencyKey === null) return insertPlant(write) ? 'created' : 'idTaken';
    const first = findKey.get(owner, idempotencyKey, now - KEY_LIFETIME_MS);
    if (first !== undefined) return toReplay(first, write);
    if (!insertPlant(write)) return 'idTaken';
    saveKey.run(owner, idempotencyKey, digestPlant(write), now);
    return 'created';
  }

  return (write, now) => {
    switch (write.kind) {
      case 'createPlant':
        return createPlant(write, now);
      case 'deletePlant':
        return deletePlant(write.owner, write.id) ? 'deleted' : 'absent';
      case 'createToken':
        insertToken(write.token);
        return 'done';
      case 'revokeToken':
        return changesOf(revokeToken, write.at, write.id) > 0 ? 'done' : 'absent';
      case 'recordTokenUse':
        return changesOf(recordTokenUse, write.at, write.id) > 0 ? 'done' : 'absent';
    }
  };
}

function changesOf(statement: StatementSync, ...values: SQLInputValue[]): number {
  return Number(statement.run(...values).changes);
}
