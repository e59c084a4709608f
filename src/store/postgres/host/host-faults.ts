import type { Row } from '../../rows.ts';
import type { ConnectionOptions } from '../../store.ts';
import { isStandby, reasonOf } from '../errors.ts';
import type { Statement } from '../statements.ts';
import { HostPool, type PooledClient } from './host-pool.ts';
import { watchTimelines } from './sessions.ts';

/** A host of the database URL with its port, and the URL with this host only. */
export interface Host {
  readonly place: string;
  readonly url: string;
}

/**
 * Query for what distinguishes servers that accept writes: two hosts of the URL may be names of one. Fails by `log_file` on a
 * server without timelines: all hosts of CockroachDB accept writes.
 */
export const FIND_IDENTITY: Statement = {
  text: `SELECT pg_postmaster_start_time()::text AS started, pg_walfile_name(pg_current_wal_lsn()) AS log_file,
                current_setting('transaction_read_only') AS read_only`,
};

const ignore = (): void => undefined;

/**
 * Resolves to a text for each host, except the `primary`, that is no standby. `identity` is the row of FIND_IDENTITY there, if
 * it has one. Connects to one host after the other: lookups of host names that hang leave threads for others. These
 * connections are apart from all others: an old primary that is not used is no regression of the timeline. Stops at `closed`.
 */
export async function findHostFaults(
  hosts: readonly Host[],
  primary: string,
  identity: Row | undefined,
  options: ConnectionOptions,
  closed: Promise<'closed'>,
): Promise<readonly string[]> {
  const faults: string[] = [];
  for (const { place, url } of hosts.filter((host) => host.place !== primary)) {
    const reports = { timelines: watchTimelines(ignore), onWarning: ignore, onLoginRejected: ignore };
    // As the only host of its pool, it has the whole time for connections.
    const pool = new HostPool(url, { ...options, poolSize: 1 }, 1, reports);
    const fault = await Promise.race([findFault(pool, place, primary, identity, options), closed]);
    await pool.close();
    if (fault === 'closed') return [];
    if (fault !== undefined) faults.push(fault);
  }
  return faults;
}

async function findFault(
  pool: HostPool,
  place: string,
  primary: string,
  identity: Row | undefined,
  options: ConnectionOptions,
): Promise<string | undefined> {
  let client: PooledClient;
  try {
    client = await pool.take(performance.now() + options.acquireTimeoutMs);
  } catch (error: unknown) {
    if (isStandby(error)) return undefined;
    return `${place} cannot be used now, so a failover to it would fail: ${reasonOf(error)}`;
  }
  try {
    const { rows } = await client.ask(FIND_IDENTITY, options);
    const [row] = rows;
    if (row?.read_only === 'on')
      return `${place} is read-only, but no standby; correct its setup, or the database URL`;
    if (identity === undefined || row?.started === identity.started) return undefined;
    return `${primary} and ${place} both accept writes, but must be a primary and its standby; correct the database URL`;
  } catch {
    return undefined;
  } finally {
    client.release();
  }
}
