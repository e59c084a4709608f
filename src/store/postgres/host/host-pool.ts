import pg from 'pg';
import { messageOf } from '../../../thrown-errors.ts';
import type { ConnectionOptions } from '../../store.ts';
import {
  classOfNotice,
  isLoginRejected,
  isOutOfConnections,
  isPoolTimeout,
  type Notice,
  POOL_TIMEOUT,
  textOfNotice,
} from '../errors.ts';
import { Client, ClientOrFailure, END_MS, prepareSession, SERVICE_NAME, type Timelines } from './sessions.ts';

export type PooledClient = Client & pg.PoolClient;

function asOwnClient<T extends pg.ClientBase>(client: T): T & Client {
  if (client instanceof Client) return client;
  throw new TypeError('the pool has a client of another class');
}

/** Milliseconds without new connections after the server rejected one. */
const GROWTH_PAUSE_MS = 1_000;

/**
 * A timer that is late by this many milliseconds shows that the process was suspended or busy. Requests then wait as long
 * again for a client.
 */
const LATE_MS = 250;

/**
 * Milliseconds of silence on a connection after which the kernel asks ten times, once a second, whether the server is still
 * there. Then it ends the connection. Otherwise a command would notice a silent network only at the end of its statement's
 * time.
 */
const KEEP_ALIVE_AFTER_MS = 10_000;

interface PoolReports {
  readonly timelines: Timelines;
  readonly onWarning: (text: string) => void;
  readonly onLoginRejected: (reason: string) => void;
}

/** The connections to one host. */
export class HostPool extends pg.Pool {
  /** All clients, also those that are connecting. */
  readonly #clients: ReadonlySet<Client>;
  /** The clients taken. */
  readonly #taken = new Set<pg.PoolClient>();
  readonly #size: number;
  readonly #connectTimeoutMs: number;
  readonly #onLoginRejected: (reason: string) => void;
  #growth: NodeJS.Timeout | undefined;
  /** Time of the latest answer that did not arrive, on the monotonic clock. */
  #silentAt = 0;

  /**
   * `onWarning` gets each warning of the server, also that of a login; `onLoginRejected` the reason of each login that it
   * rejects while other connections work.
   */
  constructor(
    url: string,
    options: ConnectionOptions,
    hosts: number,
    { timelines, onWarning, onLoginRejected }: PoolReports,
  ) {
    const connectTimeoutMs = Math.ceil(options.acquireTimeoutMs / hosts);
    const clients = new Set<Client>();
    super({
      Client: new Proxy(ClientOrFailure, {
        construct(Class, [config]: [pg.ClientConfig]) {
          const client = new Class(config);
          clients.add(client);
          client.on('notice', (notice: Notice) => {
            if (classOfNotice(notice) === 'warning') onWarning(textOfNotice(notice));
          });
          client.once('end', () => clients.delete(client));
          return client;
        },
      }),
      connectionString: url,
      max: options.poolSize,
      connectionTimeoutMillis: connectTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
      application_name: options.ofCommand === true ? `${SERVICE_NAME}-command` : SERVICE_NAME,
      pipeline: true,
      verify: (client, done) => {
        prepareSession(asOwnClient(client), options, hosts, timelines).then(() => done(), done);
      },
    });
    this.#clients = clients;
    this.#size = options.poolSize;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#onLoginRejected = onLoginRejected;
    // Ignores error events of lost connections: without a listener, they would end the process. Statements in
    // flight still reject, and the pool replaces the connection when needed.
    this.on('error', () => undefined);
    this.on('connect', (client) => {
      const ownClient = asOwnClient(client);
      ownClient.onSilence = () => {
        this.#silentAt = performance.now();
      };
      client.on('error', (error) => {
        ownClient.lostBy ??= error;
      });
    });
    this.on('release', (_, client) => this.#taken.delete(client));
  }

  /**
   * Takes a client. Rejects if the host does not give one, or none is free by `deadline`, a time on the monotonic
   * clock. While the pool is busy, waits for a client that others use. Closes clients without an answer since the
   * server was silent on one of them: each would let a request wait for the whole timeout.
   */
  async take(deadline: number): Promise<PooledClient> {
    let until = deadline;
    for (let late: unknown; ; ) {
      try {
        const client = await this.#next(until, late);
        if (this.answers(client)) {
          this.#taken.add(client);
          return client;
        }
        client.destroy();
        client.release(true);
        late = new Error('connection timeout, as on another connection');
      } catch (error: unknown) {
        // At first, those that are connecting count too.
        const mayConnect = late === undefined && isOutOfConnections(error) && this.totalCount > 0;
        const now = performance.now();
        // After a suspension, timers fire before the answers that free the clients are read.
        if (until === deadline && now > deadline + LATE_MS) until = now + LATE_MS;
        if (now >= until || !(mayConnect || this.isBusy(error))) throw error;
        if (isLoginRejected(error)) {
          this.#pauseGrowth();
          this.#onLoginRejected(messageOf(error));
        }
        late = error;
      }
    }
  }

  /** Ends the connections. Those that are still in use soon after, or connecting, are closed: their callers are gone. */
  async close(): Promise<void> {
    const cut = setTimeout(() => {
      for (const client of this.#clients)
        client.destroy(new Error('closed, since the service or command ends'));
    }, END_MS);
    await this.end().finally(() => clearTimeout(cut));
  }

  /** True if `error` only means that there is no further connection now, and those that are open work. */
  isBusy(error: unknown): boolean {
    return this.#usableCount() > 0 && (isLoginRejected(error) || isPoolTimeout(error));
  }

  #usableCount(): number {
    return this.idleCount + [...this.#taken].filter((client) => this.answers(asOwnClient(client))).length;
  }

  /** False if the server was silent since its latest answer to `client`. */
  answers({ answeredAt }: Client): boolean {
    return answeredAt >= this.#silentAt;
  }

  #pauseGrowth(): void {
    this.options.max = Math.max(1, this.#usableCount());
    clearTimeout(this.#growth);
    this.#growth = setTimeout(() => {
      this.options.max = this.#size;
    }, GROWTH_PAUSE_MS).unref();
  }

  /**
   * Takes a free client, waits for one, or connects. Rejects at `deadline`, with `late` if an earlier try failed with it.
   * Rejects earlier, as if the pool were busy, if a new connection is slow while others work, or if none works. At the
   * first try, a new session may be set up after `deadline`: its statements have their usual timeouts.
   */
  #next(deadline: number, late: unknown): Promise<PooledClient> {
    return new Promise((resolve, reject) => {
      let isSettled = false;
      const timers: NodeJS.Timeout[] = [];
      const rest = Math.max(1, deadline - performance.now());
      const before = this.totalCount;
      // The pool has one option for the time to connect and for that in its queue, and reads it in `connect`.
      const queues = before >= this.options.max || this.idleCount > 0;
      if (queues) this.options.connectionTimeoutMillis = rest;
      this.connect((error, client, release) => {
        // The pool's timeout may come later than `fail`; it has no client and no `release`. A client that comes later
        // goes back to the pool, which would otherwise count it as in use for ever.
        if (client === undefined) fail(error);
        else if (isSettled) release();
        else {
          settle();
          resolve(asOwnClient(client));
        }
      });
      this.options.connectionTimeoutMillis = this.#connectTimeoutMs;
      // A pool that is ended calls back at once.
      if (isSettled) return;
      const isNew = this.totalCount > before;
      const look = (): void => {
        const works = this.#usableCount() > 0;
        if (isNew && works) this.#pauseGrowth();
        // A slow new connection while others work, or a place in the queue of which none works.
        if (isNew === works) fail(new Error(POOL_TIMEOUT));
      };
      timers.push(setTimeout(look, isNew ? this.#connectTimeoutMs / 2 : this.#connectTimeoutMs));
      if (late !== undefined) timers.push(setTimeout(fail, rest, late));

      function fail(error: unknown): void {
        settle();
        reject(error);
      }

      function settle(): void {
        isSettled = true;
        for (const timer of timers) clearTimeout(timer);
      }
    });
  }
}
