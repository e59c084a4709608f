import pg from 'pg';
import type { ConnectionOptions } from '../../store.ts';
import { isOutOfConnections, isPoolTimeout, POOL_TIMEOUT } from '../errors.ts';
import { Client, ClientOrFailure, prepareSession, type Timelines } from './sessions.ts';

export type PooledClient = Client & pg.PoolClient;

function asOwnClient<T extends pg.ClientBase>(client: T): T & Client {
  if (client instanceof Client) return client;
  throw new TypeError('the pool has a client of another class');
}

/** Milliseconds without new connections after the server had none left. */
const GROWTH_PAUSE_MS = 1_000;

/** The connections to one host. */
export class HostPool extends pg.Pool {
  /** The clients taken. */
  readonly #taken = new Set<pg.PoolClient>();
  readonly #size: number;
  readonly #connectTimeoutMs: number;
  #growth: NodeJS.Timeout | undefined;
  /** Time of the latest answer that did not arrive, on the monotonic clock. */
  #silentAt = 0;

  constructor(url: string, options: ConnectionOptions, hosts: number, timelines: Timelines) {
    const connectTimeoutMs = Math.ceil(options.acquireTimeoutMs / hosts);
    super({
      Client: ClientOrFailure,
      connectionString: url,
      max: options.poolSize,
      // To connect, and for a free client; `take` waits further for a client of a host that works.
      connectionTimeoutMillis: connectTimeoutMs,
      keepAlive: true,
      application_name: 'plant-store',
      pipeline: true,
      verify: (client, done) => {
        prepareSession(asOwnClient(client), options, hosts, timelines).then(() => done(), done);
      },
    });
    this.#size = options.poolSize;
    this.#connectTimeoutMs = connectTimeoutMs;
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
    for (let late: unknown; ; ) {
      try {
        const client = await this.#next(deadline, late);
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
        if (performance.now() >= deadline || !(mayConnect || this.isBusy(error))) throw error;
        this.#pauseGrowth();
        late = error;
      }
    }
  }

  /** True if `error` only means that there is no further connection now, and those that are open work. */
  isBusy(error: unknown): boolean {
    return this.#usableCount() > 0 && (isOutOfConnections(error) || isPoolTimeout(error));
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
   * Takes a free client, or connects. Rejects with `late`, the error of an earlier try, at `deadline`. At the first try,
   * rejects as if the pool were busy if a new connection takes half of the time to connect, and others work.
   */
  #next(deadline: number, late: unknown): Promise<PooledClient> {
    return new Promise((resolve, reject) => {
      let isSettled = false;
      const rest = Math.max(0, deadline - performance.now());
      let timeout = late === undefined ? undefined : setTimeout(fail, rest, late);
      const before = this.totalCount;
      this.connect((error, client, release) => {
        // The pool's timeout may come later than `fail`; it has no client and no `release`. A client that comes later
        // goes back to the pool, which would otherwise count it as in use for ever.
        if (client === undefined) fail(error);
        else if (isSettled) release();
        else {
          isSettled = true;
          clearTimeout(timeout);
          resolve(asOwnClient(client));
        }
      });
      // The pool limits the time to connect. The set-up of a new session has more: that of its statements.
      if (timeout === undefined && this.totalCount > before)
        timeout = setTimeout(() => {
          if (this.#usableCount() > 0) fail(new Error(POOL_TIMEOUT));
        }, this.#connectTimeoutMs / 2);

      function fail(error: unknown): void {
        isSettled = true;
        clearTimeout(timeout);
        reject(error);
      }
    });
  }
}
