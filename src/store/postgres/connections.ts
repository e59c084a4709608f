import pg from 'pg';
import { messageOf } from '../../api-errors.ts';
import {
  type ConnectionCounts,
  type ConnectionOptions,
  StoreNotOpened,
  StoreUnavailable,
  type TimelineRegression,
} from '../store.ts';
import { isAboutHost, isFromServer, isStalePlan, noConnection, noConnectionToAny } from './errors.ts';
import { rowsOfPrimary, withRole } from './primary-check.ts';
import type { Connection, Row, Statement } from './statements.ts';
import { FIND_TIMELINE, type Timelines, watchTimelines } from './timelines.ts';

/** The fields of a notice that are read. */
interface Notice {
  readonly severity: string | undefined;
  readonly message: string | undefined;
}

/** How much longer than the server's own limit this side waits, before it takes the connection for dead. */
const ANSWER_GRACE_MS = 500;

/**
 * The connections to the primary. With several hosts in the URL (as libpq has them) it is looked for among them,
 * again whenever a connection or a statement says that the host is not it any more.
 */
export class Connections {
  readonly #pools: readonly pg.Pool[];
  readonly #places: readonly string[];
  readonly #options: ConnectionOptions;
  readonly #timelines: Timelines;
  #current = 0;

  /** Throws StoreNotOpened when the URL makes no sense. */
  constructor(
    url: string,
    options: ConnectionOptions,
    onTimelineRegression: (regression: TimelineRegression) => void = () => undefined,
  ) {
    this.#options = options;
    this.#timelines = watchTimelines(onTimelineRegression);
    const hosts = splitHosts(url);
    this.#places = hosts.map(({ place }) => place);
    this.#pools = hosts.map((host) => createPool(host.url, options, hosts.length, this.#timelines));
  }

  /** Runs one statement that writes on a connection of its own. A standby rejects it by itself. */
  async query(statement: Statement): Promise<readonly Row[]> {
    return this.use((connection) => connection.query(statement));
  }

  /** Runs one statement that reads; rejects with StoreUnavailable on a standby, also behind a pooler. */
  async read(statement: Statement): Promise<readonly Row[]> {
    return this.use(async (connection) => rowsOfPrimary(await connection.query(withRole(statement))));
  }

  /** Lends a connection to some work, and rejects as that does. A connection that failed is not used again. */
  async use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const { client, index } = await this.#acquire();
    const warnings: string[] = [];
    const warn = ({ severity, message }: Notice): void => {
      if (severity === 'WARNING') warnings.push(message ?? '');
    };
    client.on('notice', warn);
    try {
      const result = await work({ query: (statement) => this.#send(client, statement) });
      // A commit that gives up waiting for its synchronous standby succeeds, with no more than a warning.
      if (warnings.length > 0) throw new StoreUnavailable(`PostgreSQL warned: ${warnings.join('; ')}`);
      client.release();
      return result;
    } catch (error: unknown) {
      const wrongHost = isAboutHost(error);
      if (wrongHost && this.#current === index) this.#current = (index + 1) % this.#pools.length;
      client.release(wrongHost || isStalePlan(error));
      throw error;
    } finally {
      client.off('notice', warn);
    }
  }

  count(): ConnectionCounts {
    const sum = (of: (pool: pg.Pool) => number): number =>
      this.#pools.reduce((total, pool) => total + of(pool), 0);
    const idle = sum(({ idleCount }) => idleCount);
    return {
      idle,
      busy: sum(({ totalCount }) => totalCount) - idle,
      waiting: sum(({ waitingCount }) => waitingCount),
    };
  }

  timelineRegressions(): number {
    return this.#timelines.regressions();
  }

  async close(): Promise<void> {
    await Promise.all(this.#pools.map((pool) => pool.end()));
  }

  async #acquire(): Promise<{ client: pg.PoolClient; index: number }> {
    const first = this.#current;
    const failures: unknown[] = [];
    for (let step = 0; step < this.#pools.length; step += 1) {
      const index = (first + step) % this.#pools.length;
      try {
        const client = await this.#pools[index]?.connect();
        if (client !== undefined) {
          this.#current = index;
          return { client, index };
        }
      } catch (error: unknown) {
        failures[index] = error;
      }
    }
    throw noConnectionToAny(this.#places, failures);
  }

  async #send(client: pg.PoolClient, { name, text, values }: Statement): Promise<readonly Row[]> {
    try {
      const config = {
        ...(this.#options.prepare && name !== undefined ? { name } : {}),
        ...(values === undefined ? {} : { values: [...values] }),
        text,
      };
      return (await query(client, config, this.#options)).rows;
    } catch (error: unknown) {
      // A reset, the end of the connection, a time that ran out: nothing but their wording is common to all.
      throw isFromServer(error) ? error : noConnection(error);
    }
  }
}

/** Runs work in a transaction. It ends as `endFor` says, and with a rollback if the work rejects. */
export async function inTransaction<T>(
  connection: Connection,
  begin: `BEGIN${string}`,
  work: () => Promise<T>,
  endFor: (result: T) => 'COMMIT' | 'ROLLBACK' = () => 'COMMIT',
): Promise<T> {
  await connection.query({ text: begin });
  try {
    const result = await work();
    await connection.query({ text: endFor(result) });
    return result;
  } catch (error: unknown) {
    return rollBack(connection, error);
  }
}

/**
 * Rolls a transaction back and rejects with the reason for that; or with StoreUnavailable when the connection is to be
 * given up, since the server did not roll back.
 */
export async function rollBack(connection: Connection, reason: unknown): Promise<never> {
  try {
    await connection.query({ text: 'ROLLBACK' });
  } catch (error: unknown) {
    // What ended a connection tells more than that it is gone.
    if (!isAboutHost(reason))
      throw new StoreUnavailable(`a transaction could not be rolled back: ${messageOf(error)}`, {
        cause: error,
      });
  }
  throw reason;
}

/** Lets go of its socket when a login fails on this side, which pg leaves to the patience of the server: a minute. */
class Client extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config);
    this.connection.on('error', () => this.connection.stream.destroy());
  }
}

/**
 * Sends a query, and destroys the connection when the answer is late. Uses neither the promises of pg nor its
 * `query_timeout`, which keep each query in memory until the next full collection (docs/performance.md).
 */
function query(
  client: pg.Client,
  config: string | pg.QueryConfig,
  { statementTimeoutMs }: ConnectionOptions,
): Promise<pg.QueryResult<Row>> {
  return new Promise((resolve, reject) => {
    const timeout = setTimeout(
      () => client.connection.stream.destroy(new Error('Query read timeout')),
      statementTimeoutMs + ANSWER_GRACE_MS,
    );
    client.query<Row>(config, (error, result) => {
      clearTimeout(timeout);
      if (error) reject(error);
      else resolve(result);
    });
  });
}

function createPool(url: string, options: ConnectionOptions, hosts: number, timelines: Timelines): pg.Pool {
  const pool = new pg.Pool({
    Client,
    connectionString: url,
    max: options.poolSize,
    connectionTimeoutMillis: Math.ceil(options.acquireTimeoutMs / hosts),
    keepAlive: true,
    application_name: 'plant-store',
    pipeline: true,
    verify: (client, done) => {
      prepareSession(client, options, hosts, timelines).then(() => done(), done);
    },
  });
  // A connection that dies is replaced when the next one is needed. While it is lent its statements fail, and while it
  // is idle there is nobody to tell; without these listeners it would end the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** Not as start-up parameters, which poolers refuse; and on the primary alone. */
async function prepareSession(
  client: pg.Client,
  options: ConnectionOptions,
  hosts: number,
  timelines: Timelines,
): Promise<void> {
  // A transaction whose instance vanished must not keep its locks until the network notices, which takes hours.
  const set = `SET statement_timeout = ${options.statementTimeoutMs}; SET synchronous_commit = on;
               SET idle_in_transaction_session_timeout = ${options.statementTimeoutMs}`;
  const ask = `SELECT current_setting('in_hot_standby', true) AS standby,
                      current_setting('transaction_read_only') AS read_only`;
  // Servers without timelines answer with an error, and have none to compare.
  const [, { rows }, timeline] = await Promise.all([
    query(client, set, options),
    query(client, ask, options),
    query(client, FIND_TIMELINE, options).catch(() => undefined),
  ]);
  // A standby may lack what was acknowledged. A primary that is read-only can still list, unless there is a better one.
  const [role] = rows;
  if (role?.standby === 'on' || (hosts > 1 && role?.read_only !== 'off'))
    throw new StoreUnavailable('the host is not the primary');
  timelines.note(timeline?.rows[0]?.timeline);
}

/** One URL a host, and its place in words: `postgres://user@a:5432,b:5433/db` names two. */
function splitHosts(url: string): { readonly place: string; readonly url: string }[] {
  const match = /^(postgres(?:ql)?:\/\/)(?:([^/?]*)@)?([^/?]*)(.*)$/.exec(url);
  if (match === null)
    throw new StoreNotOpened('the database URL must be postgres://USER:PASSWORD@HOST:PORT/DATABASE');
  const [, scheme = '', credentials, hosts = '', rest = ''] = match;
  const login = credentials === undefined ? '' : `${credentials}@`;
  const query = `${rest.includes('?') ? '&' : '?'}uselibpqcompat=true`;
  return hosts.split(',').map((place) => ({ place, url: `${scheme}${login}${place}${rest}${query}` }));
}
