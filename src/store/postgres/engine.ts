// cspell:words relrowsecurity relforcerowsecurity relowner
import { startKeyExpiry } from '../expired-keys-timer.ts';
import { isNewStore } from '../migrations.ts';
import { FIND_ANY_ROW, type Row } from '../rows.ts';
import { type Engine, KEY_DELETION_AGE_MS, type StoreOptions, StoreUnavailable } from '../store.ts';
import { createCommit, createPerOwnerFallback } from './commit.ts';
import { Connections } from './connections.ts';
import { withStoreErrors } from './errors.ts';
import { deleteExpiredKeys } from './expired-keys.ts';
import { watchClocks } from './host/clock-difference.ts';
import { migratePostgres } from './migrate.ts';
import { createPageReader, readLargePlant } from './pages.ts';
import { retryConflicts } from './retry-conflicts.ts';
import { durabilityFaults, FIND_DURABILITY_FAULTS } from './schema/durability.ts';
import { MISSING_KEYS, withoutKeys } from './schema/missing-keys.ts';
import { NOW_MS, type Statement } from './statements.ts';
import { createTokenLookup, findTokenById } from './token-lookup.ts';

/** SQL of the tables whose row-level security applies to the account. Not every compatible server has `row_security_active`. */
const RESTRICTED_TABLES = `(
  SELECT string_agg(relname, ', ' ORDER BY relname)
    FROM pg_class JOIN pg_roles ON rolname = current_user
   WHERE pg_class.oid IN ('plants'::regclass, 'idempotency_keys'::regclass, 'tokens'::regclass)
     AND relrowsecurity AND NOT (rolsuper OR rolbypassrls)
     AND (relforcerowsecurity OR NOT pg_has_role(relowner, 'USAGE')))`;

/**
 * Query for the required privileges that the service lacks, missing keys, and tables whose row-level security may hide
 * rows. `SELECT … FOR UPDATE` requires the UPDATE privilege; for plants, only statements per owner have it.
 */
const FIND_TABLE_FAULTS: Statement = {
  name: 'find-table-faults',
  text: `SELECT string_agg(grants.action || ' on ' || grants.of, ', ' ORDER BY grants.of, grants.action) AS missing_grants,
                ${MISSING_KEYS} AS missing_keys, ${RESTRICTED_TABLES} AS restricted
           FROM (VALUES ('plants', 'SELECT'), ('plants', 'INSERT'), ('plants', 'UPDATE'), ('plants', 'DELETE'),
                        ('idempotency_keys', 'SELECT'), ('idempotency_keys', 'INSERT'),
                        ('idempotency_keys', 'UPDATE'), ('idempotency_keys', 'DELETE'),
                        ('tokens', 'SELECT'), ('tokens', 'UPDATE')) AS grants (of, action)
          WHERE NOT has_table_privilege(grants.of, grants.action)`,
};

/**
 * Opens the PostgreSQL engine. Several instances can share its database. Rejects with StoreNotOpened if the
 * migration fails.
 */
export async function openPostgres(
  url: string,
  {
    connections: options,
    keyDeletion,
    onCreated = () => undefined,
    onSetupFault,
    now,
    ...reports
  }: StoreOptions,
): Promise<Engine> {
  if (isNewStore(await migratePostgres(url, reports))) onCreated();
  const connections = new Connections(url, options, reports);
  const togetherOrPerOwner = createPerOwnerFallback();
  const keyExpiry = keyDeletion && startKeyExpiry(deleteOldKeys, keyDeletion);
  const compareClocks = watchClocks(keyDeletion?.onClockDifference ?? (() => undefined));

  function read(statement: Statement): Promise<readonly Row[]> {
    return withStoreErrors(() => retryConflicts(() => connections.read(statement)));
  }

  function deleteOldKeys(): Promise<void> {
    return withStoreErrors(async () => {
      const before = now();
      const [row] = await connections.read({ text: `SELECT ${NOW_MS} AS now` });
      const ofServer = Number(row?.now);
      compareClocks(ofServer, before, now());
      const until = ofServer - KEY_DELETION_AGE_MS;
      await togetherOrPerOwner((perOwner) => deleteExpiredKeys(connections, until, perOwner), {
        mayEnd: true,
      });
    });
  }

  // Deletes expired keys at the start. This also shows whether the server rejects a statement that changes rows
  // of more than one owner.
  keyExpiry?.runNow();

  if (onSetupFault !== undefined) void reportSetupFaults(connections, onSetupFault);

  return {
    commit: createCommit(connections, options, togetherOrPerOwner),
    listPlants: createPageReader(read),
    readLargePlant: (owner, range) => readLargePlant(read, owner, range),
    findToken: createTokenLookup(read),
    findTokenById: (id) => findTokenById(read, id),
    hasValidTokens: async (now) => {
      const text =
        'SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) LIMIT 1';
      return (await read({ text, values: [now] })).length > 0;
    },
    isEmpty: async () => (await read({ text: FIND_ANY_ROW })).length === 0,
    ping: async () => {
      const [row] = await read(FIND_TABLE_FAULTS);
      if (typeof row?.missing_grants === 'string')
        throw new StoreUnavailable(
          `the database account of the service lacks ${row.missing_grants}; grant it to this account`,
        );
      if (typeof row?.restricted === 'string')
        throw new StoreUnavailable(
          `row-level security may hide rows of ${row.restricted}; disable it there, or give the account of the service BYPASSRLS`,
        );
      if (typeof row?.missing_keys === 'string') throw new StoreUnavailable(withoutKeys(row.missing_keys));
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

/** Reports what may lose acknowledged writes, or prevents a failover. No request waits for it. */
async function reportSetupFaults(connections: Connections, report: (fault: string) => void): Promise<void> {
  // If the query fails, the store is closed or not available, which other errors show, or the server does not know it.
  const [row] = await connections.read(FIND_DURABILITY_FAULTS).catch(() => []);
  for (const fault of durabilityFaults(row, connections.hostCount)) report(fault);
  for (const fault of await connections.findHostFaults()) report(fault);
}
