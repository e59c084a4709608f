import type pg from 'pg';
import { messageOf } from '../../thrown-errors.ts';
import type { Row } from '../rows.ts';
import {
  type ConnectionCounts,
  type ConnectionOptions,
  StatementRejected,
  StoreNotOpened,
  type StoreOptions,
  StoreUnavailable,
  withNothingStored,
} from '../store.ts';
import {
  allBusy,
  classOfNotice,
  isFromServer,
  isPoolTimeout,
  isReadOnly,
  isStalePlan,
  isStaleRole,
  mustCloseConnection,
  type Notice,
  noConnection,
  noConnectionToAny,
  textOf,
} from './errors.ts';
import { FIND_IDENTITY, findHostFaults, type Host } from './host/host-faults.ts';
import { HostPool, type PooledClient } from './host/host-pool.ts';
import { rowsOfPrimary, withRole } from './host/primary-check.ts';
import { type Client, type Timelines, watchTimelines } from './host/sessions.ts';
import type { Connection, Statement } from './statements.ts';

/** Age in milliseconds from which a session is replaced after an error that an outdated role may cause. */
const REPLACED_AFTER_MS = 1_000;

/**
 * Pools connections to the PostgreSQL primary. If the URL has several hosts (as in libpq), finds the primary
 * among them. Searches again when an error shows that the current host is no longer the primary.
 */
export class Connections {
  readonly #pools: readonly HostPool[];
  readonly #hosts: readonly Host[];
  readonly #options: ConnectionOptions;
  readonly #timelines: Timelines;
  readonly #closed = Promise.withResolvers<'closed'>();
  #current = 0;

  /** Throws StoreNotOpened if the URL is invalid. */
  constructor(
    url: string,
    options: ConnectionOptions,
    {
      onTimelineRegression = () => undefined,
      onDatabaseWarning = () => undefined,
      onLoginRejected = () => undefined,
    }: Pick<StoreOptions, 'onTimelineRegression' | 'onDatabaseWarning' | 'onLoginRejected'> = {},
  ) {
    this.#options = options;
    this.#timelines = watchTimelines(onTimelineRegression);
    this.#hosts = splitHosts(url);
    const reports = { timelines: this.#timelines, onWarning: onDatabaseWarning, onLoginRejected };
    this.#pools = this.#hosts.map((host) => new HostPool(host.url, options, this.#hosts.length, reports));
  }

  /** Runs one statement that writes. Needs no role check: a standby rejects writes. Use `read` for one that does not. */
  async query(statement: Statement): Promise<readonly Row[]> {
    return this.use((connection) => connection.query(statement));
  }

  /**
   * Runs one read statement. Rejects with StoreUnavailable if a standby answered, even if a pooler chose the
   * standby.
   */
  async read(statement: Statement): Promise<readonly Row[]> {
    return this.use(async (connection) => rowsOfPrimary(await connection.query(withRole(statement))));
  }

  /**
   * Calls `work` with a connection from the pool. Rejects with NothingStored if there is none, with the error of `work`, or
   * with StoreUnavailable if the session ended after an error of the server, or a warning leaves the effect of a statement
   * in doubt. Closes a failed connection instead of reusing it.
   */
  async use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const { client, index } = await this.#acquire();
    const doubts: string[] = [];
    const note = (notice: Notice): void => {
      if (classOfNotice(notice) === 'doubt') doubts.push(`${notice.message} (${notice.code})`);
    };
    client.on('notice', note);
    try {
      const result = await work({ query: (statement) => this.#send(client, statement) });
      // If a commit stops waiting for its synchronous standby, PostgreSQL only warns. The standby may then lack the
      // data.
      if (doubts.length > 0) throw new StoreUnavailable(`PostgreSQL warned: ${doubts.join('; ')}`);
      client.release();
      return result;
    } catch (thrown: unknown) {
      const error = await this.#checkSession(client, thrown);
      const mustClose = mustCloseConnection(error);
      // After any other error, the next search tries this host first. Another one may be an old primary.
      const hasFailed = isReadOnly(error) || this.#pools[index]?.answers(client) === false;
      if (mustClose && hasFailed && this.#current === index) this.#current = (index + 1) % this.#pools.length;
      // A grant that is missing for ever must not cost a login for each request.
      const isOld = performance.now() - client.createdAt > REPLACED_AFTER_MS;
      client.release(mustClose || isStalePlan(error) || (isOld && isStaleRole(error)));
      throw error;
    } finally {
      client.off('notice', note);
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

  /** Number of hosts of the URL. */
  get hostCount(): number {
    return this.#hosts.length;
  }

  /** Resolves to a text for each host, except the current one, that is no standby. */
  async findHostFaults(): Promise<readonly string[]> {
    const [identity] = await this.read(FIND_IDENTITY).catch(() => []);
    const primary = this.#hosts[this.#current]?.place ?? '';
    return findHostFaults(this.#hosts, primary, identity, this.#options, this.#closed.promise);
  }

  timelineRegressions(): number {
    return this.#timelines.regressions();
  }

  async close(): Promise<void> {
    this.#closed.resolve('closed');
    await Promise.all(this.#pools.map((pool) => pool.close()));
  }

  async #acquire(): Promise<{ client: PooledClient; index: number }> {
    const deadline = performance.now() + this.#options.acquireTimeoutMs;
    const first = this.#current;
    const failures: unknown[] = [];
    for (let step = 0; step < this.#pools.length; step += 1) {
      const index = (first + step) % this.#pools.length;
      const pool = this.#pools[index];
      if (pool === undefined) continue;
      try {
        const client = await pool.take(deadline);
        this.#current = index;
        return { client, index };
      } catch (error: unknown) {
        const isBusy = pool.isBusy(error);
        failures[index] = isBusy && isPoolTimeout(error) ? allBusy(error) : error;
        // The host works. Another one that accepts writes may be an old primary.
        if (isBusy) break;
      }
    }
    const places = this.#hosts.map(({ place }) => place);
    throw noConnectionToAny(places, failures);
  }

  /**
   * Returns `error`, or StoreUnavailable if it is from the server and the session ended after it: the server may have
   * panicked in a commit that it had stored, with any code.
   */
  async #checkSession(client: Client, error: unknown): Promise<unknown> {
    if (!isFromServer(error) || mustCloseConnection(error)) return error;
    try {
      await this.#ask(client, { text: 'SELECT 1' });
      return error;
    } catch (end: unknown) {
      return new StoreUnavailable(`${textOf(error)}; then ${messageOf(end)}`, { cause: end });
    }
  }

  async #send(client: Client, statement: Statement): Promise<readonly Row[]> {
    const result = await this.#ask(client, statement);
    // The server answers COMMIT without an error if a statement before it failed.
    if (statement.text === 'COMMIT' && result.command !== 'COMMIT')
      throw new StatementRejected(
        'PostgreSQL rolled the transaction back, since a statement in it had failed',
      );
    return result.rows;
  }

  async #ask(client: Client, statement: Statement): Promise<pg.QueryResult<Row>> {
    // pg does not send a statement on a connection that is lost.
    const isSent = client.lostBy === undefined;
    try {
      return await client.ask(statement, this.#options);
    } catch (error: unknown) {
      // Treats every error that is not from the server as a connection failure. pg has no common code for
      // resets, closed connections and timeouts.
      if (isFromServer(error)) throw error;
      const lost = noConnection(error, client.lostBy);
      throw isSent ? lost : withNothingStored(lost);
    }
  }
}

/** Splits a database URL into one URL for each host: `postgres://user@a:5432,b:5433/db` has two hosts. */
function splitHosts(url: string): Host[] {
  const match = /^(postgres(?:ql)?:\/\/)(?:([^/?]*)@)?([^/?]*)(.*)$/.exec(url);
  if (match === null)
    throw new StoreNotOpened('the database URL must be postgres://USER:PASSWORD@HOST:PORT/DATABASE');
  const [, scheme = '', credentials, hosts = '', rest = ''] = match;
  const login = credentials === undefined ? '' : `${credentials}@`;
  const query = `${rest.includes('?') ? '&' : '?'}uselibpqcompat=true`;
  return hosts.split(',').map((place) => ({ place, url: `${scheme}${login}${place}${rest}${query}` }));
}
