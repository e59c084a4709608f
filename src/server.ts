import { readdirSync, readFileSync } from 'node:fs';
import { BlockList, isIPv6, Server as TcpServer } from 'node:net';
import { setTimeout as delay, setImmediate } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { type Config, connectionOptions, namesOf, partsOf } from './config.ts';
import { displayUrl } from './database-url.ts';
import type { VerifyJwt } from './http/auth/authentication.ts';
import { listenOnBoth, rejectUnlessFree } from './http/protocol/bind-listeners.ts';
import { ConnectionRegistry } from './http/protocol/connection/connection-registry.ts';
import { openTls, type Tls } from './http/protocol/tls.ts';
import { type Audit, createAudit } from './observability/audit-log.ts';
import type { ServiceLog } from './observability/log.ts';
import type { EventLog } from './observability/log-events.ts';
import type { Metrics } from './observability/metrics.ts';
import { onceAMinute } from './observability/once-a-minute.ts';
import { logStore } from './observability/store-log.ts';
import type { Tracing } from './observability/tracing.ts';
import { version } from './packaged-files.ts';
import { within } from './running-time.ts';
import { isEmbedded, markAsServed, openStore, type PlaceRisks, placeRisksOf } from './store/open-engine.ts';
import type { Store } from './store/store.ts';

/**
 * Milliseconds of the grace period, which begins when the listener closes. Open connections may still send requests.
 * The period ends early if no connection is open.
 */
export const GRACE_MS = 500;

/** Max milliseconds after the grace period in which a stopping server finishes the requests in flight. */
export const DRAIN_MS = 7_500;

/**
 * Max milliseconds of the last step of a shutdown, after the last request in flight. The step sends pending
 * trace spans and answers requests to the admin listener.
 */
export const LAST_MS = 1_000;

/** Max milliseconds until the destroyed connections of a listener are closed. */
const CLOSE_MS = 100;

/**
 * Max milliseconds of a shutdown, not counting the stop delay, the closing of the store, and time in which the process is
 * suspended. Below 10 seconds, after which `docker stop` kills the process.
 */
export const STOP_MS = GRACE_MS + DRAIN_MS + LAST_MS + 2 * CLOSE_MS;

export interface Server {
  /** Base URL of the service, such as `http://127.0.0.1:8080/v1`. */
  readonly url: string;
  readonly adminUrl: string;
  readonly store: Store;
  readonly tls: Tls | undefined;
  /**
   * Finishes requests in flight, commits the last batch and closes the store. From the call on,
   * `/ready` fails and responses have `Connection: close`. In a graceful stop, the listener closes after the configured
   * delay, and open connections are served for a grace period after that.
   */
  close(how?: 'gracefully'): Promise<void>;
  /** Logs the counts that would wait for the end of an interval. `close` does so too. */
  logCounts(): void;
}

interface ServerOptions {
  readonly config: Config;
  readonly serviceLog: ServiceLog;
  /** Enables tracing. OpenTelemetry's environment variables set the destination of the traces. */
  readonly traces?: boolean;
  /** Called once the store is migrated and open. If the process ends before, nothing is half done. */
  readonly onOpened?: () => void;
  /** Called once after a fatal store error; then the process must restart. */
  readonly onFatal: (error: Error) => void;
  /** Returns milliseconds since the epoch; by default from the system clock. */
  readonly now?: () => number;
  /** Returns milliseconds of a monotonic clock; by default the clock of the process. */
  readonly monotonicNow?: () => number;
}

/** Opens the store, wires the service to it, and resolves once both listeners accept connections. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { config, serviceLog, traces = false, onOpened, onFatal, now = Date.now } = options;
  const { monotonicNow = () => performance.now() } = options;
  const { log } = serviceLog;
  const audit = createAudit(log);
  const { close: closeStoreLog, ...storeEvents } = logStore(log, monotonicNow);
  const tls = openTls(config.tlsCert, config.tlsKey, log);
  const addresses = [addressOf(config, 'host', 'port'), addressOf(config, 'adminHost', 'adminPort')] as const;
  await rejectUnlessFree(...addresses);
  const tracing = traces ? await loadTracing(log) : undefined;
  let isStopping = false;
  const closed = new AbortController();
  const opening = openStore(config.databaseUrl, {
    onFatal,
    now,
    connections: connectionOptions(config),
    onCreated: () => log.event('created a new store', { store: displayUrl(config.databaseUrl) }),
    onMigrate: (migrations) => {
      log.event('migrating the store', { migrations });
      // On SQLite, this thread does nothing else until the migration ends.
      log.flush();
    },
    onBlocked: () =>
      log.event('the migration waits for a lock of another PostgreSQL session, for up to a minute', {}),
    onCommit: (...batch) => wired.metrics.committed(...batch),
    ...storeEvents,
  }).then((store) => {
    onOpened?.();
    return store;
  });
  const wiring = Promise.all([opening, loadHttp()]).then(([opened, http]) =>
    wire({
      config,
      serviceLog,
      audit,
      now,
      monotonicNow,
      tls,
      tracing,
      http,
      opened,
      isStopping: () => isStopping,
      closed: closed.signal,
    }),
  );
  const wired = await wiring.catch(async (error: unknown) => {
    closed.abort();
    await opening.then(
      (store) => store.close(),
      () => undefined,
    );
    throw error;
  });
  const { store, app, admin, connections, adminConnections } = wired;
  const lock = await markAsServed(config.databaseUrl);
  const setup = { isShared: lock?.isShared ?? false, ...(await placeRisksOf(config.databaseUrl)) };

  async function close(how?: 'gracefully'): Promise<void> {
    isStopping = true;
    // Without a delay, the listener closes before any response has `Connection: close`. Otherwise the client of such
    // a response could connect again just before the listener closes, and the connection would be reset.
    if (how === 'gracefully' && config.stopDelay > 0) await delay(config.stopDelay);
    // Calls `close()` of net.Server, which only stops listening. `close()` of http.Server would also close
    // idle connections immediately, even if a request is arriving.
    TcpServer.prototype.close.call(app.server);
    if (how === 'gracefully') {
      await within(GRACE_MS, connections.whenEmpty());
      // Reads pending input before `drain` closes idle connections: requests may have arrived while the
      // process was suspended.
      await setImmediate();
    }
    await drain(app, connections, DRAIN_MS);
    closed.abort();
    const last = [store.close(), drain(admin, adminConnections, LAST_MS), tracing?.close(LAST_MS)];
    await Promise.all(last).finally(logCounts);
    lock?.release();
  }

  function logCounts(): void {
    audit.close();
    closeStoreLog();
    serviceLog.reportDropped();
  }

  try {
    const [address, adminUrl] = await listenOnBoth([app, addresses[0]], [admin, addresses[1]]);
    const url = (tls === undefined ? address : address.replace(/^http:/, 'https:')) + config.basePath;
    log.event('serving', { url, adminUrl, store: displayUrl(config.databaseUrl) });
    warnOfSetup(config, log, wired, setup);
    return { url, adminUrl, store, tls, close, logCounts };
  } catch (error: unknown) {
    await close();
    throw error;
  }
}

const MOUNT_WARNINGS = {
  network:
    'the SQLite file is on a network file system, where its locks do not work; move it to a local disk, or use PostgreSQL',
  memory:
    'the SQLite file is on a file system in memory, which a restart of the machine or container empties; move it to a disk',
  container:
    'the SQLite file is on an overlay file system, which is usually removed with its container; mount a volume for it',
} as const;

/** The setup of an embedded store. */
interface StoreSetup extends PlaceRisks {
  /** True if another service uses it too. */
  readonly isShared: boolean;
}

/** Warns about a setup that is allowed, but probably a mistake. */
function warnOfSetup(
  config: Config,
  log: EventLog,
  { app, admin }: Wired,
  { isShared, mount, mode }: StoreSetup,
): void {
  const store = displayUrl(config.databaseUrl);
  if (mount !== undefined) log.event(MOUNT_WARNINGS[mount], { store });
  if (mode !== undefined)
    log.event('every user can read or change the SQLite file; set its mode to 640 or 600', { store, mode });
  if (isShared)
    log.event(
      'another service uses the same SQLite file; stop one of them, or move to PostgreSQL to run several',
      { store },
    );
  const files = countFiles();
  if (files !== undefined && files.max < config.maxConnections + files.open)
    log.event(
      'the process may not open as many files as --max-connections needs; raise ulimit -n, or LimitNOFILE of its unit',
      { maxFiles: files.max, maxConnections: config.maxConnections },
    );
  if (config.tlsCert === '' && !isOnLoopback(app))
    log.event('plain HTTP on a non-loopback address; use TLS or a proxy with TLS', { host: config.host });
  if (!isOnLoopback(admin))
    log.event('the admin listener has no authentication; restrict access to it', { host: config.adminHost });
}

function addressOf(config: Config, host: 'host' | 'adminHost', port: 'port' | 'adminPort') {
  return { host: config[host], port: config[port], namesOf: { host: namesOf(host), port: namesOf(port) } };
}

interface Wiring extends Pick<ServerOptions, 'config' | 'serviceLog'> {
  readonly audit: Audit;
  readonly now: () => number;
  readonly monotonicNow: () => number;
  readonly tls: Tls | undefined;
  readonly tracing: Tracing | undefined;
  readonly http: Awaited<ReturnType<typeof loadHttp>>;
  readonly opened: Store;
  readonly isStopping: () => boolean;
  readonly closed: AbortSignal;
}

type Wired = Awaited<ReturnType<typeof wire>>;

/** Wires the service and the admin listener to an open store, without listening. */
async function wire(wiring: Wiring) {
  const { config, serviceLog, audit, now, monotonicNow, tls, tracing, http, opened, isStopping } = wiring;
  const { log, answered, linesDropped } = serviceLog;
  const metrics = http.createMetrics({
    version,
    operationIds: http.operations.map(({ operationId }) => operationId),
    engine: isEmbedded(config.databaseUrl) ? 'sqlite' : 'postgres',
    monotonicNow,
  });
  const store = tracing?.traceStore(opened) ?? opened;
  metrics.watchStore(store.load);
  metrics.watchLog(linesDropped);
  const connections = new ConnectionRegistry(config.maxConnections, config.sendBufferLimit);
  metrics.watchConnections(connections);
  if (tls !== undefined) metrics.watchCertificate(tls.expiresAt);
  const adminConnections = new ConnectionRegistry(config.maxConnections, config.sendBufferLimit);
  const app = http.createApp({
    store,
    verifyJwt: await loadJwtVerifier(wiring, metrics),
    log,
    audit,
    onAnswered: answered,
    now,
    monotonicNow,
    basePath: config.basePath,
    limits: config,
    trustedProxies: partsOf(config.trustProxy),
    origins: partsOf(config.corsOrigin),
    tls,
    hsts: config.hsts,
    isStopping,
    metrics,
    tracing,
    connections,
  });
  const admin = http.createAdmin({
    registry: metrics.registry,
    limits: config,
    connections: adminConnections,
    log,
    checks: [
      {
        name: 'serving',
        check: async () => {
          if (isStopping()) throw new Error('the service is stopping');
        },
      },
      // Not read once `serving` fails: closing the store would wait for each of these reads.
      { name: 'store', check: async () => (isStopping() ? undefined : store.ping()) },
    ],
  });
  return { store, metrics, app, admin, connections, adminConnections };
}

// Imports the HTTP modules while the writer thread starts. `setImmediate` delays the imports, so that the
// thread starts first.
async function loadHttp() {
  await setImmediate();
  const [{ createMetrics }, { createApp, operations }, { createAdmin }] = await Promise.all([
    import('./observability/metrics.ts'),
    import('./http/app.ts'),
    import('./http/admin.ts'),
  ]);
  return { createMetrics, createApp, operations, createAdmin };
}

// Imports the tracing module on demand, so that disabled tracing costs nothing. Its `close` then logs the lost
// spans that no line has counted.
async function loadTracing(log: EventLog): Promise<Tracing> {
  const { startTracing } = await import('./observability/tracing.ts');
  const lossLog = onceAMinute((problem, spans) =>
    log.event('traces could not be sent; check the OpenTelemetry collector', { problem, spans }),
  );
  const onMisconfigured = (warning: string) =>
    log.event('OpenTelemetry warns; act on its message', { warning });
  const warningLog = onceAMinute(onMisconfigured);
  const tracing = startTracing({
    onMisconfigured,
    onWarning: (warning) => warningLog.report(warning, 1),
    onSpansLost: lossLog.report,
  });
  const logLatest = (): void => {
    lossLog.close();
    warningLog.close();
  };
  return { ...tracing, close: (maxMs) => tracing.close(maxMs).finally(logLatest) };
}

/**
 * Returns how many files the process may open, and how many it has open. Returns undefined if there is no limit, or no
 * /proc as on Linux.
 */
function countFiles(): { readonly max: number; readonly open: number } | undefined {
  try {
    const [, max] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return max === undefined ? undefined : { max: Number(max), open: readdirSync('/proc/self/fd').length };
  } catch {
    return undefined;
  }
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8);
loopback.addAddress('::1', 'ipv6');

/** True if a listener is bound to a loopback address. Only the address shows it: a name may have any. */
function isOnLoopback({ server }: FastifyInstance): boolean {
  const bound = server.address();
  if (bound === null || typeof bound === 'string') return false;
  return loopback.check(bound.address, isIPv6(bound.address) ? 'ipv6' : 'ipv4');
}

async function loadJwtVerifier(
  { config, serviceLog: { log }, now, monotonicNow, closed }: Wiring,
  metrics: Metrics,
): Promise<VerifyJwt | undefined> {
  const { oidcIssuer: issuer, oidcAudience: audience } = config;
  if (issuer === '') return undefined;
  // Imports the OIDC module on demand, so that a service without an issuer does not load it.
  const { createJwtVerifier } = await import('./http/auth/oidc.ts');
  const keys = metrics.watchKeys();
  return createJwtVerifier({
    issuer,
    audience,
    now,
    monotonicNow,
    closed,
    onKeysRead: keys.read,
    onKeysUnreadable: (err, left) => {
      keys.unreadable(left);
      log.event('the keys of the identity provider could not be read; check the provider and --oidc-issuer', {
        err,
      });
    },
    onUnusableKey: (kid, problem) =>
      log.event('a key of the identity provider is unusable; replace it at the provider', { kid, problem }),
  });
}

/** Waits a limited time for requests in flight, then destroys the remaining connections, and waits until they are logged. */
async function drain(app: FastifyInstance, connections: ConnectionRegistry, maxMs: number): Promise<void> {
  await within(maxMs, connections.closeWhenIdle());
  connections.destroy();
  await within(CLOSE_MS, connections.whenEmpty());
  await app.close();
}
