import { Command } from 'commander';
import type { Config, Flags } from '../../config.ts';
import { displayUrl, isPlainByDefault } from '../../database-url.ts';
import { type Audit, createAudit } from '../../observability/audit-log.ts';
import { revokeToken, storeToken } from '../../observability/audited-writes.ts';
import { createLog } from '../../observability/log.ts';
import type { EventLog } from '../../observability/log-events.ts';
import { afterRunning } from '../../running-time.ts';
import { type Server, STOP_MS, startServer } from '../../server.ts';
import { isEmbedded } from '../../store/open-engine.ts';
import { StatementRejected, type Store } from '../../store/store.ts';
import { messageOf } from '../../thrown-errors.ts';
import { DEFAULT_EXPIRES, mintSecret, newToken, parseExpires, scopes } from '../../token.ts';
import { type CommandContext, print } from '../context.ts';
import { addSettings, configOf } from '../settings/flags.ts';
import { wantsTraces, warningsOf } from '../settings/otel-variables.ts';
import { disableAllocationSitePretenuring, limitYoungGeneration } from '../v8-tuning.ts';

const STOP_SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT'];

const FIRST_OWNER = 'default';

/** The same for all services, so that the store rejects the first token of the second of two that start together. */
const FIRST_TOKEN_ID = 'FirstToken00';

/** Milliseconds after the end of `--stop-delay` at which a stop that still runs ends with exit code 1. */
export const FORCED_EXIT_MS = STOP_MS + 300;

/**
 * Milliseconds after the first signal in which a second signal counts as the same signal. A later signal ends
 * the process immediately. On Ctrl-C, the terminal and npm each send a signal.
 */
export const SAME_SIGNAL_MS = 500;

/**
 * Milliseconds between checks that the parent process still runs: Node has no event for the end of a parent.
 */
const PARENT_CHECK_MS = 200;

export function serveCommand(context: CommandContext): Command {
  const command = new Command('serve').description('migrates the store and starts the service');
  return addSettings(command).action(async (flags: Flags) => {
    const config = configOf(context, flags);
    const serviceLog = await createLog(config.logLevel);
    const { log } = serviceLog;
    const broken = Promise.withResolvers<Error>();
    const traces = wantsTraces(context.env);
    for (const warning of traces ? warningsOf(context.env) : [])
      log.event('OpenTelemetry warns; act on its message', { warning });
    if (isPlainByDefault(config.databaseUrl, context.env))
      log.event(
        'PostgreSQL is on another machine and reached without TLS; add sslmode=verify-full to its URL, or sslmode=disable on a private network',
        { store: displayUrl(config.databaseUrl) },
      );
    let isOpen = false;
    const onOpened = (): void => {
      isOpen = true;
    };
    const starting = startServer({ config, serviceLog, traces, onOpened, onFatal: broken.resolve });
    const forcedExitMs = config.stopDelay + FORCED_EXIT_MS;
    // A terminal that closes sends SIGHUP.
    const endsWithTerminal = config.tlsCert === '' && context.stdin.isTTY === true;
    const stop = stopOnSignal(context, log, {
      stopSignals: endsWithTerminal ? [...STOP_SIGNALS, 'SIGHUP'] : STOP_SIGNALS,
      starting,
      isOpen: () => isOpen,
      forcedExitMs,
    });
    if (config.tlsCert !== '') reloadOnSighup(context, starting, log);
    else if (!endsWithTerminal)
      context.signals.on('SIGHUP', () =>
        log.event('SIGHUP was ignored, since there is no certificate to read again; stop with SIGTERM', {}),
      );
    if (context.env.npm_lifecycle_event) stopWithParent(context, log, stop);
    void broken.promise.then((err) => {
      log.event(
        'fatal store error; stopping. Check the disk; before the next start, copy the store with its -wal and -shm, and run plant-store check',
        { err },
      );
      stop(1);
    });
    const server = await starting;
    disableAllocationSitePretenuring();
    limitYoungGeneration();
    // Writes the "serving" log line before the welcome text is printed.
    log.flush();
    try {
      if (mayCreateFirstToken(context, config) && (await server.store.isEmpty()))
        await createFirstToken(context, server, log);
      else await warnWithoutValidTokens(server, config, log);
    } catch (err: unknown) {
      log.event('the first token could not be created; stopping', { err });
      stop(1);
    }
  });
}

interface Stoppable {
  readonly stopSignals: readonly NodeJS.Signals[];
  readonly starting: Promise<Server>;
  /** Returns whether the store is open. */
  readonly isOpen: () => boolean;
  /** Milliseconds after a signal at which a stop that still runs ends with exit code 1. */
  readonly forcedExitMs: number;
}

/**
 * Stops the server on signals and unexpected errors. Before the store is open, ends the process immediately.
 * Returns a function that stops the server.
 */
function stopOnSignal(
  { signals, end }: CommandContext,
  log: EventLog,
  { stopSignals, starting, isOpen, forcedExitMs }: Stoppable,
): (exitCode: number) => void {
  let stoppingSince: number | undefined;
  let exitCode = 0;
  let server: Server | undefined;
  starting.then(
    (started) => {
      server = started;
    },
    () => {
      exitCode = 1;
    },
  );

  function cutOff(): void {
    server?.logCounts();
    end(1);
  }

  function stop(code: number): void {
    exitCode = Math.max(exitCode, code);
    if (stoppingSince !== undefined) return;
    stoppingSince = performance.now();
    // The store may wait a minute for a lock. An unfinished migration is rolled back.
    if (!isOpen()) {
      log.event('stopped', {});
      end(exitCode);
      return;
    }
    afterRunning(forcedExitMs, () => {
      log.event('the stop took too long, so requests in flight are cut off; exiting', {});
      cutOff();
    });
    void close();
  }

  async function close(): Promise<void> {
    // After a failed start there is no server to close. The command that awaits `starting` reports the error.
    const started = await starting.catch(() => undefined);
    if (started === undefined) return;
    try {
      await started.close('gracefully');
      log.event('stopped', {});
      end(exitCode);
    } catch (err: unknown) {
      log.event('shutdown failed', { err });
      end(1);
    }
  }

  for (const signal of stopSignals) {
    signals.on(signal, () => {
      if (stoppingSince !== undefined && performance.now() - stoppingSince > SAME_SIGNAL_MS) cutOff();
      log.event('stopping', { signal });
      stop(0);
    });
  }
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    signals.on(event, (err: unknown) => {
      log.event('unexpected error; stopping', { err });
      stop(1);
    });
  }
  return stop;
}

/**
 * Stops the server when its parent process ends. The parent is a shell that npm has started. npm sends
 * signals only to that shell.
 */
function stopWithParent(
  { parentPid }: CommandContext,
  log: EventLog,
  stop: (exitCode: number) => void,
): void {
  const parent = parentPid();
  const timer = setInterval(() => {
    if (parentPid() === parent) return;
    clearInterval(timer);
    log.event('the parent process (npm) has ended; stopping', {});
    stop(0);
  }, PARENT_CHECK_MS);
  timer.unref();
}

/**
 * Reloads the certificate on SIGHUP. If SIGHUP comes during the start, reloads it after the start.
 */
function reloadOnSighup({ signals }: CommandContext, starting: Promise<Server>, log: EventLog): void {
  signals.on('SIGHUP', async () => {
    // After a failed start there is nothing to reload. The command that awaits `starting` reports the error.
    const server = await starting.catch(() => undefined);
    if (server?.tls === undefined) return;
    try {
      server.tls.reload();
      log.event('the certificate was reloaded', { validTo: server.tls.expiresAt().toISOString() });
    } catch (err: unknown) {
      log.event(
        'the certificate could not be reloaded, so the previous one stays in use; correct the files and send SIGHUP again',
        { err },
      );
    }
  });
}

// A slip in `NODE_ENV`, such as the quotes or line ending of a file, must not print a token into a log.
function mayCreateFirstToken({ env }: CommandContext, { databaseUrl }: Config): boolean {
  return !/^\W*(?:prod|production)\W*$/i.test(env.NODE_ENV ?? '') && isEmbedded(databaseUrl);
}

async function warnWithoutValidTokens(
  { store }: Server,
  { oidcIssuer }: Config,
  log: EventLog,
): Promise<void> {
  if (oidcIssuer !== '') return;
  // Skips the warning if the store does not answer. In this case requests get error
  // responses, which already show the problem.
  const hasValidTokens = await store.hasValidTokens(Date.now()).catch(() => true);
  if (!hasValidTokens)
    log.event(
      'no valid token, so every request for plants gets 401; create one: plant-store token create OWNER',
      {},
    );
}

/**
 * Creates a token and prints it, unless another service has created the first token. Revokes a token that could not be
 * printed.
 */
async function createFirstToken(
  context: CommandContext,
  { store, url }: Server,
  log: EventLog,
): Promise<void> {
  const secret = mintSecret();
  const now = Date.now();
  const expiresAt = parseExpires(DEFAULT_EXPIRES, now) ?? null;
  const grant = { scopes, expiresAt, name: 'first token, created by the first start' };
  const token = { ...newToken(secret, FIRST_OWNER, grant, now), id: FIRST_TOKEN_ID };
  const audit = createAudit(log);
  try {
    await storeToken(store, audit, token);
  } catch (error: unknown) {
    if (error instanceof StatementRejected && (await store.hasValidTokens(now))) return;
    throw error;
  }
  try {
    await print(context, welcome(secret, url));
  } catch (err: unknown) {
    await revokeUnseen(store, { log, audit }, token.id, err);
  }
}

/** Revokes a token that could not be printed, for the reason `unprinted`. If that fails too, logs what to do. */
async function revokeUnseen(
  store: Store,
  { log, audit }: { readonly log: EventLog; readonly audit: Audit },
  id: string,
  unprinted: unknown,
): Promise<void> {
  try {
    await revokeToken(store, audit, id);
  } catch (err: unknown) {
    log.event(
      'the first token could be neither printed nor revoked; revoke it: plant-store token revoke ID',
      { token: id, reason: messageOf(unprinted), err },
    );
    return;
  }
  log.event(
    'the first token could not be printed, so it was revoked; create one: plant-store token create OWNER',
    { err: unprinted },
  );
}

function welcome(secret: string, url: string): string {
  const authorization = `-H 'Authorization: Bearer ${secret}'`;
  return [
    '',
    `This store is new. Here is a token for the owner "${FIRST_OWNER}"; it is shown only once and expires in ${DEFAULT_EXPIRES.replace('d', ' days')}:`,
    '',
    `  ${secret}`,
    '',
    `Create, list and delete a plant, here or in a browser at ${url}/docs:`,
    '',
    `  curl ${url}/plants ${authorization} -H 'Content-Type: application/json' -d '{"id":1,"name":"Black alder","tag":"Alnus glutinosa"}'`,
    `  curl ${url}/plants ${authorization}`,
    `  curl -X DELETE ${url}/plants/1 ${authorization}`,
    '',
    '',
  ].join('\n');
}
