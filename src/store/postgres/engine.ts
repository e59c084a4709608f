import type { FoundToken } from '../../token.ts';
import { startKeyExpiry } from '../expired-keys-timer.ts';
import { createdStore } from '../migrations.ts';
import { FIND_ANY_ROW, FOUND_TOKEN_COLUMNS, foundTokenValues, type Row, toFoundToken } from '../rows.ts';
import {
  type Engine,
  KEY_DELETION_AGE_MS,
  NothingStored,
  type Outcome,
  StatementRejected,
  type StoreOptions,
  StoreUnavailable,
  type Write,
  withNothingStored,
} from '../store.ts';
import { commitBatch, isOfCreations } from './batch.ts';
import { Connections } from './connections.ts';
import { isAcrossShards, isFromServer, mayBeUniqueViolation, toStoreError } from './errors.ts';
import { deleteExpiredKeys } from './expired-keys.ts';
import { migratePostgres } from './migrate.ts';
import { createPageReader, readLargePlant } from './pages.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { createNewPlants, NOW_MS, type Statement } from './statements.ts';
import { createTokenLookup } from './token-lookup.ts';

/**
 * Pause of the plain INSERT, in milliseconds, after it failed because an id was taken. During the pause,
 * creations use INSERT with ON CONFLICT.
 */
const OPTIMISM_PAUSE_MS = 1_000;

/**
 * Milliseconds for which the engine sends separate statements per owner. This period starts when the server
 * rejects a statement for several owners.
 */
const PER_OWNER_MS = 10 * 60 * 1_000;

/**
 * Query for the required privileges that the service lacks. `SELECT … FOR UPDATE` requires the UPDATE
 * privilege.
 */
const FIND_MISSING_GRANTS: Statement = {
  name: 'find-missing-grants',
  text: `SELECT string_agg(grants.action || ' on ' || grants.of, ', ' ORDER BY grants.of, grants.action) AS missing
           FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'),
                        ('idempotency_keys', 'SELECT'), ('idempotency_keys', 'INSERT'),
                        ('idempotency_keys', 'UPDATE'), ('idempotency_keys', 'DELETE'),
                        ('tokens', 'SELECT'), ('tokens', 'UPDATE')) AS grants (of, action)
          WHERE NOT has_table_privilege(grants.of, grants.action)`,
};

/**
 * Number of consecutive failed commits after which each commit first counts the commits that wait for a
 * standby.
 */
const SUSPICIOUS_FAILURES = 2;

/**
 * Opens the PostgreSQL engine. Several instances can share its database. Rejects with StoreNotOpened if the
 * migration fails.
 */
export async function openPostgres(
  url: string,
  { connections: options, keyDeletion, onCreated = () => undefined, ...reports }: StoreOptions,
): Promise<Engine> {
  if (createdStore(await migratePostgres(url))) onCreated();
  const connections = new Connections(url, options, reports);
  const keyExpiry = keyDeletion && startKeyExpiry(deleteOldKeys, keyDeletion);

  async function read(statement: Statement): Promise<readonly Row[]> {
    try {
      return await retryConflicts(() => connections.read(statement));
    } catch (error: unknown) {
      throw toStoreError(error);
    }
  }

  let failures = 0;

  async function commit(batch: readonly Write[]): Promise<readonly Outcome[]> {
    if (failures >= SUSPICIOUS_FAILURES) await rejectWithoutStandby();
    try {
      const outcomes = await retryConflicts(() => execute(batch));
      failures = 0;
      return outcomes;
    } catch (error: unknown) {
      const meaning = toStoreError(error);
      if (!(meaning instanceof StatementRejected)) failures += 1;
      throw meaning;
    }
  }

  async function execute(batch: readonly Write[]): Promise<readonly Outcome[]> {
    const created = await createOptimistically(batch);
    if (created !== undefined) return created;
    return togetherOrPerOwner((perOwner) =>
      connections.use((connection) => commitBatch(connection, batch, perOwner)),
    );
  }

  let perOwnerUntil = 0;

  /**
   * Calls `work` with `perOwner` false: each statement covers all owners. If the server rejects such a
   * statement, calls `work` again with separate statements per owner. Later calls use separate statements
   * until PER_OWNER_MS have passed, since the rejection may be temporary. Citus rejects such statements: it
   * shards by owner and cannot lock rows of several owners in one statement.
   */
  async function togetherOrPerOwner<T>(work: (perOwner: boolean) => Promise<T>): Promise<T> {
    const perOwner = performance.now() < perOwnerUntil;
    try {
      return await work(perOwner);
    } catch (error: unknown) {
      if (perOwner || !isAcrossShards(error)) throw error;
      perOwnerUntil = performance.now() + PER_OWNER_MS;
      return work(true);
    }
  }

  async function deleteOldKeys(): Promise<void> {
    try {
      const [row] = await connections.query({ text: `SELECT ${NOW_MS} AS now` });
      const until = Number(row?.now) - KEY_DELETION_AGE_MS;
      await togetherOrPerOwner((perOwner) => deleteExpiredKeys(connections, until, perOwner));
    } catch (error: unknown) {
      throw toStoreError(error);
    }
  }

  let optimisticFrom = 0;

  /**
   * Tries an INSERT without ON CONFLICT. With ON CONFLICT, the server needs a third more time. If an id is
   * taken, stores nothing and resolves to undefined. During the next OPTIMISM_PAUSE_MS, calls skip the plain
   * INSERT, since the server logs each failure as an error.
   */
  async function createOptimistically(batch: readonly Write[]): Promise<readonly Outcome[] | undefined> {
    if (performance.now() < optimisticFrom || !isOfCreations(batch)) return undefined;
    try {
      await connections.query(createNewPlants(batch));
      return batch.map(() => 'created');
    } catch (error: unknown) {
      if (!mayBeUniqueViolation(error)) throw error;
      optimisticFrom = performance.now() + OPTIMISM_PAUSE_MS;
      return undefined;
    }
  }

  /**
   * Rejects while too many commits wait for a synchronous standby. On the server, such a commit keeps waiting
   * after the service has closed the connection. Without this limit, waiting commits would use all
   * connections of the server, and reads would fail.
   */
  async function rejectWithoutStandby(): Promise<void> {
    const waiting = await countStandbyWaits();
    if (waiting >= options.poolSize)
      throw new NothingStored(`${waiting} commits are already waiting for a synchronous standby`);
  }

  async function countStandbyWaits(): Promise<number> {
    try {
      const [row] = await connections.query({
        text: `SELECT count(*) AS waiting FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event = 'SyncRep'
                  AND query_start < clock_timestamp() - $1::float8 * interval '1 millisecond'`,
        values: [options.statementTimeoutMs],
      });
      return Number(row?.waiting);
    } catch (error: unknown) {
      // Returns 0 if a server compatible with PostgreSQL rejects this query. `rejectWithoutStandby` then
      // never rejects.
      if (isFromServer(error)) return 0;
      throw withNothingStored(error);
    }
  }

  async function findTokenById(id: string): Promise<FoundToken | undefined> {
    const [row] = await read({
      name: 'find-token-by-id',
      // Names the columns: with `*`, a new column would change the result type. PostgreSQL would then reject
      // the prepared statement.
      text: `SELECT ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE id = $1`,
      values: [id],
    });
    return row === undefined ? undefined : toFoundToken(foundTokenValues(row));
  }

  // Deletes expired keys at the start. This also shows whether the server rejects a statement that changes rows
  // of more than one owner.
  keyExpiry?.runNow();

  return {
    commit,
    listPlants: createPageReader(read),
    readLargePlant: (owner, range) => readLargePlant(read, owner, range),
    findToken: createTokenLookup(read),
    findTokenById,
    hasTokens: async () => (await read({ text: 'SELECT 1 FROM tokens LIMIT 1' })).length > 0,
    isEmpty: async () => (await read({ text: FIND_ANY_ROW })).length === 0,
    ping: async () => {
      const [row] = await read(FIND_MISSING_GRANTS);
      if (typeof row?.missing === 'string')
        throw new StoreUnavailable(
          `the database account of the service lacks ${row.missing}; grant it to this account`,
        );
    },
    load: () => ({
      connections: connections.count(),
      walBytes: 0,
      checkpointFailures: 0,
      timelineRegressions: connections.timelineRegressions(),
    }),
    close: async () => {
      keyExpiry?.end();
      await connections.close();
    },
  };
}
