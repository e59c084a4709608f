import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { messageOf } from '../../../thrown-errors.ts';
import type { Row } from '../../rows.ts';
import type { ConnectionOptions, TimelineRegression } from '../../store.ts';
import { inRecovery, NotPrimary } from '../errors.ts';
import type { Statement } from '../statements.ts';

/**
 * Milliseconds to wait for an answer after the server's statement timeout. Then the client closes the
 * connection.
 */
export const ANSWER_GRACE_MS = 500;

/** Max milliseconds from the end of a connection, or of a pool, until its sockets are closed. */
export const END_MS = 500;

/** Name of the sessions of a service in `pg_stat_activity`, unless the URL has one. By it `copy` finds the service. */
export const SERVICE_NAME = 'plant-store';

/** A connection that limits the time for each answer of the server. */
export class Client extends pg.Client {
  /** The error that ended the connection. Later queries reject with a message of pg, which says nothing of it. */
  lostBy: Error | undefined;
  /** Time of the latest result of the server, on the monotonic clock. */
  answeredAt = 0;
  /** Time of the first attempt to connect, on the monotonic clock. */
  readonly createdAt = performance.now();
  /** Called when the server did not answer in time. */
  onSilence: () => void = () => undefined;
  /** The socket of the connection, also below TLS. */
  readonly #stream: Duplex;
  #unanswered = 0;
  #timeout: NodeJS.Timeout | undefined;
  #grace: NodeJS.Timeout | undefined;

  constructor(config?: pg.ClientConfig) {
    super(config);
    this.#stream = this.connection.stream;
    reportUnreadable(this.connection);
    // Closes the socket if a login fails on the client's side. pg leaves the socket open until the server
    // closes it after a minute.
    this.connection.on('error', () => this.destroy());
  }

  /**
   * Sends a query, and closes the connection if no answer arrives in time. The time of a query starts with the
   * answer to the previous one, since the server executes them one by one. Avoids pg's promises and
   * `query_timeout`, which keep each query in memory until the next full garbage collection
   * (docs/performance.md).
   */
  ask(
    { text, values, name }: Statement,
    { statementTimeoutMs, prepare }: ConnectionOptions,
  ): Promise<pg.QueryResult<Row>> {
    return new Promise((resolve, reject) => {
      if (this.#unanswered === 0) this.#startTimeout(statementTimeoutMs);
      this.#unanswered += 1;
      const query = new pg.Query<Row>(text, values && [...values], (error, result) => {
        this.#unanswered -= 1;
        if (!error) this.answeredAt = performance.now();
        clearTimeout(this.#grace);
        if (this.#unanswered === 0) clearTimeout(this.#timeout);
        else this.#timeout?.refresh();
        if (error) reject(error);
        else resolve(result);
      });
      // Not an option of the query: pg would copy all options, descriptor by descriptor, which takes 2 µs.
      if (prepare && name !== undefined) Object.assign(query, { name });
      this.query(query);
    });
  }

  /**
   * Ends the connection, and closes its socket soon, whatever the server does. pg waits until the server closes it, which
   * may never happen if the network is silent, and would keep a command from its exit.
   */
  override end(): Promise<void>;
  override end(onEnd: (error: Error) => void): void;
  override end(onEnd?: (error: Error) => void): Promise<void> | undefined {
    setTimeout(() => this.destroy(), END_MS).unref();
    return onEnd === undefined ? super.end() : void super.end(onEnd);
  }

  /** Closes the connection immediately, without a word to the server, which may not answer. Queries reject with the error. */
  destroy(error?: Error): void {
    // Emits the error, so that queries reject with it. The listener in the constructor then calls `destroy()`.
    if (error !== undefined) this.connection.emit('error', error);
    else if (this.#stream instanceof Socket && this.#canBeReset(this.#stream)) this.#stream.resetAndDestroy();
    else this.#stream.destroy();
  }

  /**
   * True for a connected TCP socket that is not closing yet. After a plain close, the kernel would go on to send a statement:
   * once the network is back, the server would execute it after its retry.
   */
  #canBeReset({ remotePort, writableEnded }: Socket): boolean {
    return remotePort !== undefined && !writableEnded && !this.connection.stream.writableEnded;
  }

  // Two timers in a row: if the process was suspended for longer, it needs time to read the answer that arrived
  // meanwhile, or to send the query.
  #startTimeout(ms: number): void {
    this.#timeout = setTimeout(() => {
      this.#grace = setTimeout(() => {
        this.onSilence();
        this.destroy(new Error('Query read timeout'));
      }, ANSWER_GRACE_MS);
    }, ms);
  }
}

/**
 * Makes a connection fail if pg cannot read a message of the server, as a request for a login by GSSAPI. pg throws in the
 * listener of the socket, which would end the process. Throws a TypeError if pg does not read as this function expects.
 */
function reportUnreadable(connection: pg.Connection): void {
  const attach: unknown = Reflect.get(connection, 'attachListeners');
  if (typeof attach !== 'function') throw new TypeError('pg attaches no listeners to its socket');
  Reflect.set(connection, 'attachListeners', (stream: Duplex) => {
    Reflect.apply(attach, connection, [stream]);
    const [read] = stream.listeners('data');
    if (read === undefined) throw new TypeError('pg does not listen to its socket');
    stream.removeAllListeners('data').on('data', (bytes: Buffer) => {
      try {
        Reflect.apply(read, stream, [bytes]);
      } catch (error: unknown) {
        const reason = `unreadable message of the server: ${messageOf(error)}`;
        connection.emit('error', new Error(reason, { cause: error }));
      }
    });
  });
}

/** A socket that fails instead of connecting. */
class FailingSocket extends Socket {
  readonly #reason: Error;

  constructor(reason: Error) {
    super();
    this.#reason = reason;
  }

  override connect(): this {
    return this.destroy(this.#reason);
  }
}

/**
 * The class `Client`, but a constructor that throws returns a client that fails to connect with this error. pg reads the
 * certificate files of the URL in the constructor, which the pool also calls from events, where a throw ends the process.
 */
export const ClientOrFailure = new Proxy(Client, {
  construct(Class, [config]: [pg.ClientConfig]) {
    try {
      return new Class(config);
    } catch (error: unknown) {
      const reason = error instanceof Error ? error : new Error(String(error));
      return new Class({ stream: () => new FailingSocket(reason) });
    }
  },
});

/**
 * Share of a statement's time for which it waits for a lock. The error of this wait shows that nothing was stored; that of
 * the whole time does not on a distributed server, whose workers may have committed.
 */
const LOCK_SHARE = 0.9;

/**
 * SQL that sets the timeouts of a session or a transaction, so that the server ends an open transaction if this instance is
 * lost. Without timeouts, the server would notice the loss only after hours.
 */
export function setTimeouts(scope: 'SESSION' | 'LOCAL', statementTimeoutMs: number): string {
  return `SET ${scope} statement_timeout = ${statementTimeoutMs};
          SET ${scope} lock_timeout = ${Math.floor(statementTimeoutMs * LOCK_SHARE)};
          SET ${scope} idle_in_transaction_session_timeout = ${statementTimeoutMs}`;
}

/** Settings of each session, except those that the server lacks. For these, CockroachDB rejects even `current_setting`. */
const SETTINGS: Readonly<Record<string, string>> = {
  // A missing tag must not become the text NULL.
  array_nulls: 'on',
  // The plan of a prepared statement stays while its tables grow. The server would plan to read an empty table whole.
  enable_bitmapscan: 'off',
  enable_seqscan: 'off',
  // The pool closes idle connections itself. One that the server closes fails the request that takes it.
  idle_session_timeout: '0',
  // Compiling statements to machine code takes longer than running them. The planner would choose it for large
  // tables, since it does not know how few plants a list reads.
  jit: 'off',
  // An error instead of missing rows, if row-level security would hide some.
  row_security: 'off',
  // After a network outage, the server would keep its end of lost connections for hours, and have none left.
  tcp_keepalives_count: '3',
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  // A command such as export may take longer than the administrator allows transactions. PostgreSQL 17 has this.
  transaction_timeout: '0',
};

const SET_SETTINGS = `SELECT set_config(name, value, false)
                        FROM (VALUES ${Object.entries(SETTINGS)
                          .map(([name, value]) => `('${name}', '${value}')`)
                          .join(', ')}) AS wanted (name, value)
                       WHERE name IN (SELECT name FROM pg_settings)`;

/**
 * Makes the server plan a prepared statement once per connection, not at each call. Has no effect on servers
 * without this setting. Has no effect on Citus, which needs the values to plan an insert for several shards.
 */
const PLAN_ONCE = `SELECT set_config('plan_cache_mode', 'force_generic_plan', false)
                    WHERE current_setting('plan_cache_mode', true) IS NOT NULL
                      AND current_setting('citus.shard_count', true) IS NULL`;

/**
 * Configures a new connection by SQL, since poolers reject settings as start-up parameters. Rejects
 * a host that is not the primary.
 */
export async function prepareSession(
  client: Client,
  options: ConnectionOptions,
  hosts: number,
  timelines: Timelines,
): Promise<void> {
  // A pooler in transaction mode would keep the longer timeouts of a command for other clients.
  const timeouts = options.ofCommand === true ? '' : `${setTimeouts('SESSION', options.statementTimeoutMs)};`;
  const set = `${timeouts} SET synchronous_commit = on; SET default_transaction_isolation = 'read committed';
               SET client_min_messages = warning; ${SET_SETTINGS}; ${PLAN_ONCE}`;
  const ask = `SELECT current_setting('in_hot_standby', true) AS standby,
                      current_setting('transaction_read_only') AS read_only`;
  // Ignores an error of the timeline query: servers compatible with PostgreSQL may lack timelines.
  const [, { rows }, timeline] = await Promise.all([
    client.ask({ text: set }, options),
    client.ask({ text: ask }, options),
    client.ask({ text: FIND_TIMELINE }, options).catch(() => undefined),
  ]);
  const [role] = rows;
  // A standby may lack acknowledged writes.
  if (role?.standby === 'on') throw inRecovery();
  // A read-only primary can still list plants, so it is accepted if the URL has no other host.
  if (hosts > 1 && role?.read_only !== 'off')
    throw role?.standby === 'off'
      ? new NotPrimary('the host is read-only: default_transaction_read_only is on')
      : inRecovery();
  timelines.note(timeline?.rows[0]?.timeline);
}

/**
 * Query for the timeline number of a primary, as eight hexadecimal digits. The number grows at each failover.
 * Returns NULL on a standby. Fails on servers that are compatible with PostgreSQL but have no timelines.
 */
const FIND_TIMELINE = `SELECT CASE WHEN current_setting('in_hot_standby', true) = 'off'
                                          THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline`;

/**
 * Detects a connection to an outdated primary. PostgreSQL increases the timeline number at each failover. A
 * primary is outdated if its timeline number is lower than the highest number seen before.
 */
export interface Timelines {
  note(timeline: unknown): void;
  /**
   * Number of times that an outdated primary was found. Successive connections with the same timeline count
   * once.
   */
  regressions(): number;
}

export function watchTimelines(onRegression: (regression: TimelineRegression) => void): Timelines {
  let highest = 0;
  let last = 0;
  let regressions = 0;
  return {
    note(digits) {
      const timeline = typeof digits === 'string' ? Number.parseInt(digits, 16) : 0;
      if (!(timeline > 0) || timeline === last) return;
      last = timeline;
      if (timeline < highest) {
        regressions += 1;
        onRegression({ timeline, highest });
      }
      highest = Math.max(highest, timeline);
    },
    regressions: () => regressions,
  };
}
