import {
  type ConnectionOptions,
  NothingStored,
  type Outcome,
  StatementRejected,
  type Write,
  withNothingStored,
} from '../store.ts';
import { commitBatch } from './batch.ts';
import type { Connections } from './connections.ts';
import { isAcrossShards, isFromServer, isUniqueViolation, isUnsupported, toStoreError } from './errors.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { type Creation, isKeyed } from './statements.ts';

/**
 * Pause of the plain INSERT, in milliseconds, after it failed because an id was taken or an idempotency key in use. During the
 * pause, creations use INSERT with ON CONFLICT. Batches with keys and those without have separate pauses: clients that repeat
 * creations do not slow the others down.
 */
const OPTIMISM_PAUSE_MS = 1_000;

/** Min milliseconds for which the engine sends separate statements per owner, after the server rejected one for several owners. */
export const PER_OWNER_MS = 10 * 60 * 1_000;

/**
 * Number of consecutive failed commits after which each commit first counts the commits that wait for a
 * standby.
 */
const SUSPICIOUS_FAILURES = 2;

type TogetherOrPerOwner = <T>(
  work: (perOwner: boolean) => Promise<T>,
  options?: { readonly mayEnd: boolean },
) => Promise<T>;

/**
 * Returns a function that calls `work` with `perOwner` false: each statement covers all owners. If the server
 * rejects such a statement, calls `work` again with separate statements per owner, and so do later calls. After
 * PER_OWNER_MS, a call with `mayEnd` tries one statement for all owners, since the rejection may have been temporary. Citus
 * rejects the deletion of expired keys: it shards by owner and cannot lock rows of several owners in one statement. It may accept
 * other statements, but executes one at a time across its shards.
 */
export function createPerOwnerFallback(): TogetherOrPerOwner {
  let until: number | undefined;

  return async (work, { mayEnd } = { mayEnd: false }) => {
    const perOwner = until !== undefined && !(mayEnd && performance.now() >= until);
    try {
      const result = await work(perOwner);
      if (mayEnd && !perOwner) until = undefined;
      return result;
    } catch (error: unknown) {
      if (perOwner || !isAcrossShards(error)) throw error;
      until = performance.now() + PER_OWNER_MS;
      return work(true);
    }
  };
}

/**
 * Returns a function that commits a batch of writes and resolves to their outcomes. Retries conflicts with other
 * transactions. Rejects with the errors that `toStoreError` returns.
 */
export function createCommit(
  connections: Connections,
  options: ConnectionOptions,
  togetherOrPerOwner: TogetherOrPerOwner,
): (batch: readonly Write[]) => Promise<readonly Outcome[]> {
  let failures = 0;
  const optimisticFrom = { keyed: 0, unkeyed: 0 };

  async function execute(batch: readonly Write[]): Promise<readonly Outcome[]> {
    return togetherOrPerOwner(
      async (perOwner) =>
        (await executeOptimistically(batch, perOwner)) ??
        commitBatch(connections, batch, perOwner ? 'perOwner' : 'allOwners'),
    );
  }

  /**
   * Tries an INSERT without ON CONFLICT. With ON CONFLICT, the server needs a third more time, and idempotency keys need a separate
   * statement. If an id is taken or a key in use, stores nothing and resolves to undefined. During the next OPTIMISM_PAUSE_MS,
   * calls skip the plain INSERT, since the server logs each failure as an error. If the server does not know the statement that
   * also stores keys, later calls skip it.
   */
  async function executeOptimistically(
    batch: readonly Write[],
    perOwner: boolean,
  ): Promise<readonly Outcome[] | undefined> {
    const creations = batch.filter(isCreation);
    const kind = creations.some(isKeyed) ? 'keyed' : 'unkeyed';
    if (creations.length === 0 || performance.now() < optimisticFrom[kind]) return undefined;
    // Citus gets one statement for all owners only for a batch of creations without keys.
    if (perOwner && (kind === 'keyed' || creations.length < batch.length)) return undefined;
    try {
      return await commitBatch(connections, batch, 'allNew');
    } catch (error: unknown) {
      if (isUniqueViolation(error)) optimisticFrom[kind] = performance.now() + OPTIMISM_PAUSE_MS;
      else if (kind === 'keyed' && isUnsupported(error)) optimisticFrom.keyed = Number.POSITIVE_INFINITY;
      else throw error;
      return undefined;
    }
  }

  return async (batch) => {
    if (failures >= SUSPICIOUS_FAILURES) await rejectWithoutStandby(connections, options);
    try {
      const outcomes = await retryConflicts(() => execute(batch));
      failures = 0;
      return outcomes;
    } catch (error: unknown) {
      const meaning = toStoreError(error);
      if (!(meaning instanceof StatementRejected)) failures += 1;
      throw meaning;
    }
  };
}

/**
 * Rejects while too many commits wait for a synchronous standby. On the server, such a commit keeps waiting
 * after the service has closed the connection. Without this limit, waiting commits would use all
 * connections of the server, and reads would fail.
 */
async function rejectWithoutStandby(connections: Connections, options: ConnectionOptions): Promise<void> {
  const waiting = await countStandbyWaits(connections, options);
  if (waiting >= options.poolSize)
    throw new NothingStored(`${waiting} commits are already waiting for a synchronous standby`);
}

async function countStandbyWaits(
  connections: Connections,
  { statementTimeoutMs }: ConnectionOptions,
): Promise<number> {
  try {
    const [row] = await connections.read({
      text: `SELECT count(*) AS waiting FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event = 'SyncRep'
                AND query_start < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
      values: [statementTimeoutMs],
    });
    return Number(row?.waiting);
  } catch (error: unknown) {
    // Returns 0 if a server compatible with PostgreSQL rejects this query. `rejectWithoutStandby` then
    // never rejects.
    if (isFromServer(error)) return 0;
    throw withNothingStored(error);
  }
}

function isCreation(write: Write): write is Creation {
  return write.kind === 'createPlant';
}
