import type { ConnectionOptions } from '../../store.ts';
import { NotPrimary, reasonOf } from '../errors.ts';
import { HostPool, type PooledClient } from './host-pool.ts';
import { FIND_TIMELINE, watchTimelines } from './sessions.ts';

/** A host of the database URL with its port, and the URL with this host only. */
export interface Host {
  readonly place: string;
  readonly url: string;
}

const ignore = (): void => undefined;

/**
 * Resolves to a text for each host, except the `primary`, that is no standby which could become the primary. Connects to each
 * once, apart from other connections: an old primary that is not used is no regression of the timeline. Stops at `closed`.
 */
export async function findHostFaults(
  hosts: readonly Host[],
  primary: string,
  options: ConnectionOptions,
  closed: Promise<undefined>,
): Promise<readonly string[]> {
  const faults = await Promise.all(
    hosts
      .filter(({ place }) => place !== primary)
      .map(async ({ place, url }) => {
        const reports = { timelines: watchTimelines(ignore), onWarning: ignore, onLoginRejected: ignore };
        const pool = new HostPool(url, { ...options, poolSize: 1 }, hosts.length, reports);
        const fault = await Promise.race([findFault(pool, place, primary, options), closed]);
        await pool.close();
        return fault;
      }),
  );
  return faults.filter((fault) => fault !== undefined);
}

async function findFault(
  pool: HostPool,
  place: string,
  primary: string,
  options: ConnectionOptions,
): Promise<string | undefined> {
  let client: PooledClient;
  try {
    client = await pool.take(performance.now() + options.acquireTimeoutMs);
  } catch (error: unknown) {
    if (error instanceof NotPrimary) return undefined;
    return `${place} cannot be used, so there is no failover to it: ${reasonOf(error)}`;
  }
  try {
    // Fails on a server without timelines: all hosts of CockroachDB accept writes.
    await client.ask(FIND_TIMELINE, options);
    return `${primary} and ${place} both accept writes, but must be a primary and its standby; correct the database URL`;
  } catch {
    return undefined;
  } finally {
    client.release();
  }
}
