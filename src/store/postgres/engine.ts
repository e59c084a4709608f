import type { Token } from '../../token.ts';
import { startKeyExpiry } from '../expired-keys-timer.ts';
import { TOKEN_COLUMNS, toToken } from '../rows.ts';
import {
  type Engine,
  KEY_LIFETIME_MS,
  type Outcome,
  type StoreOptions,
  StoreUnavailable,
  type Write,
} from '../store.ts';
import { commitBatch, isOfCreations } from './batch.ts';
import { Connections } from './connections.ts';
import { isAcrossShards, isFromServer, mayBeUniqueViolation, meaningOf } from './errors.ts';
import { deleteExpiredKeys } from './expired-keys.ts';
import { migratePostgres } from './migrate.ts';
import { readLargePlant, readPage } from './pages.ts';
import { retrying } from './retry-transient.ts';
import { sharePages } from './shared-pages.ts';
import { createNewPlants, type Row, type Statement } from './statements.ts';

/** Milliseconds after an id was taken, in which creations use ON CONFLICT instead of a plain INSERT. */
const OPTIMISM_PAUSE_MS = 1_000;

/**
 * Milliseconds in which each owner gets separate statements, after the server rejected one for several
 * owners.
 */
const PER_OWNER_MS = 10 * 60 * 1_000;

/** Finds privileges that the service lacks. It needs UPDATE, since it uses `SELECT … FOR UPDATE`. */
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
 * After this number of failed commits in a row, the service counts the commits that wait for a standby before
 * each further commit.
 */
const SUSPICIOUS_FAILURES = 2;

/** Opens the PostgreSQL engine. Several instances can share its database. Rejects with StoreNotOpened. */
export async function openPostgres(
  url: string,
  { now, connections: options, onKeysNotDeleted = () => undefined, onTimelineRegression }: StoreOptions,
): Promise<Engine> {
  await migratePostgres(url);
  const connections = new Connections(url, options, onTimelineRegression);
  const keyExpiry = startKeyExpiry(deleteOldKeys, onKeysNotDeleted);

  async function read(statement: Statement): Promise<readonly Row[]> {
    try {
      return await retrying(() => connections.read(statement));
    } catch (error: unknown) {
      throw meaningOf(error);
    }
  }

  let failures = 0;

  async function commit(batch: readonly Write[]): Promise<readonly Outcome[]> {
    if (failures >= SUSPICIOUS_FAILURES) await rejectWithoutStandby();
    try {
      const outcomes = await retrying(() => execute(batch));
      failures = 0;
      return outcomes;
    } catch (error: unknown) {
      failures += 1;
      throw meaningOf(error);
    }
  }

  async function execute(batch: readonly Write[]): Promise<readonly Outcome[]> {
    const created = await createOptimistically(batch);
    if (created !== undefined) return created;
    return togetherOrPerOwner((perOwner) =>
      connections.use((connection) => commitBatch(connection, batch, { now: now(), perOwner })),
    );
  }

  let perOwnerUntil = 0;

  /**
   * Runs `work` with statements for all owners together. If the server rejects these, uses separate
   * statements for each owner for some time. Citus shards by owner and cannot lock rows of several owners in
   * one statement. Other servers may reject it only temporarily.
   */
  async function togetherOrPerOwner<T>(work: (perOwner: boolean) => Promise<T>): Promise<T> {
    const perOwner = now() < perOwnerUntil;
    try {
      return await work(perOwner);
    } catch (error: unknown) {
      if (perOwner || !isAcrossShards(error)) throw error;
      perOwnerUntil = now() + PER_OWNER_MS;
      return work(true);
    }
  }

  async function deleteOldKeys(): Promise<void> {
    const until = now() - KEY_LIFETIME_MS;
    try {
      await togetherOrPerOwner((perOwner) => deleteExpiredKeys(connections, until, perOwner));
    } catch (error: unknown) {
      throw meaningOf(error);
    }
  }

  let optimisticFrom = 0;

  /**
   * Tries an insert without ON CONFLICT, since that clause costs the server a third more. If an id is taken,
   * changes nothing and resolves to undefined. Then tries no such insert for OPTIMISM_PAUSE_MS, since the
   * server logs an error for each taken id.
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
   * Rejects while too many commits wait for a synchronous standby. Such a commit continues on the server
   * after the service has closed the connection. Without a limit, these commits would use all connections of
   * the server, and none would be left for reads.
   */
  async function rejectWithoutStandby(): Promise<void> {
    const waiting = await countStandbyWaits();
    if (waiting >= options.poolSize)
      throw new StoreUnavailable(`${waiting} commits are already waiting for a synchronous standby`);
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
      // Other servers with PostgreSQL's protocol may reject this query. Their commits are not limited.
      if (isFromServer(error)) return 0;
      throw error;
    }
  }

  async function findTokenBy(column: 'digest' | 'id', value: unknown): Promise<Token | undefined> {
    const [row] = await read({
      name: `find-token-by-${column}`,
      // Names the columns instead of `*`: a new column would change the result type, and PostgreSQL would
      // reject the prepared statement.
      text: `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE ${column} = $1`,
      values: [value],
    });
    return row === undefined ? undefined : toToken(row);
  }

  // Deletes expired keys at the start. That also shows whether the server accepts rows of several owners in
  // one statement.
  keyExpiry.now();

  return {
    commit,
    listPlants: sharePages((owner, range, limit) => readPage(read, owner, range, limit)),
    readLargePlant: (owner, range) => readLargePlant(read, owner, range),
    findToken: (digest) => findTokenBy('digest', digest),
    findTokenById: (id) => findTokenBy('id', id),
    hasTokens: async () => (await read({ text: 'SELECT 1 FROM tokens LIMIT 1' })).length > 0,
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
      keyExpiry.end();
      await connections.close();
    },
  };
}
