import { setFlagsFromString } from 'node:v8';
import { Command } from 'commander';
import type { Config, Flags } from '../../config.ts';
import { type Audit, createAudit } from '../../observability/audit-log.ts';
import { createLog } from '../../observability/log.ts';
import type { EventLog } from '../../observability/log-events.ts';
import { type Server, STOP_MS, startServer } from '../../server.ts';
import { isEmbedded } from '../../store/open-engine.ts';
import { DEFAULT_EXPIRES, mintSecret, newToken, parseExpires, scopes } from '../../token.ts';
import type { CommandContext } from '../context.ts';
import { addSettings, configOf } from '../settings/flags.ts';
import { wantsTraces } from '../settings/otel-variables.ts';

const FIRST_OWNER = 'default';

/** Hard limit for a shutdown after the stop delay; then the process exits with 1. */
export const SHUTDOWN_MS = STOP_MS + 500;

/** A second signal within this time does not force the exit: npm repeats a Ctrl-C that the terminal already sent. */
export const SAME_SIGNAL_MS = 500;

/** Interval of checking whether the parent process has ended. Node has no event for that. */
const PARENT_CHECK_MS = 200;

export function serveCommand(context: CommandContext): Command {
  const command = new Command('serve').description('migrates the store and starts the service');
  return addSettings(command).action(async (flags: Flags) => {
    const config = configOf(context, flags);
    const serviceLog = await createLog(config.logLevel);
    const { log } = serviceLog;
    const broken = Promise.withResolvers<Error>();
    const traces = wantsTraces(context.env);
    const starting = startServer({ config, serviceLog, traces, onFatal: broken.resolve });
    const stop = stopOnSignal(context, starting, log, config.stopDelay + SHUTDOWN_MS);
    if (context.env.npm_lifecycle_event !== undefined) stopWithParent(context, log, stop);
    void broken.promise.then((err) => {
      log.event('the store cannot be trusted any more; stopping. Check it before the next start', { err });
      stop(1);
    });
    const server = await starting;
    disableAllocationSitePretenuring();
    reloadOnSighup(context, server, log);
    // Flushes the "serving" line before the welcome text is printed.
    log.flush();
    if (!shouldCreateFirstToken(context, config)) return warnWithoutTokens(server, config, log);
    try {
      if (!(await server.store.hasTokens())) context.stdout.write(await welcome(server, createAudit(log)));
    } catch (err: unknown) {
      log.event('the first token could not be created; stopping', { err });
      stop(1);
    }
  });
}

/**
 * Disables V8's allocation-site pretenuring ("Memento Mori", Clifford et al., ISMM 2015, pp. 105-117). After a burst of
 * requests V8 would allocate the listeners of later requests in old space. There each listener would keep its whole
 * request in memory until the next full collection (docs/performance.md). Called after the start, since Node's code
 * cache is valid only for the default flags.
 */
function disableAllocationSitePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/** Stops the server on signals and unexpected errors, also during the start. Returns the function that stops it. */
function stopOnSignal(
  { signals, end }: CommandContext,
  starting: Promise<Server>,
  log: EventLog,
  graceMs: number,
): (exitCode: number) => void {
  let stoppingSince: number | undefined;
  let exitCode = 0;

  function stop(code: number): void {
    exitCode = Math.max(exitCode, code);
    if (stoppingSince !== undefined) return;
    stoppingSince = performance.now();
    setTimeout(() => {
      log.event('requests did not finish in time; exiting', {});
      end(1);
    }, graceMs).unref();
    void close();
  }

  async function close(): Promise<void> {
    // If the start failed, the code that started the server reports the error.
    const server = await starting.catch(() => undefined);
    if (server === undefined) return;
    try {
      await server.close('gracefully');
      log.event('stopped', {});
      end(exitCode);
    } catch (err: unknown) {
      log.event('shutdown failed', { err });
      end(1);
    }
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    signals.on(signal, () => {
      if (stoppingSince !== undefined && performance.now() - stoppingSince > SAME_SIGNAL_MS) end(1);
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

/** Stops the server when its parent has ended. npm starts the service in a shell and signals only that shell. */
function stopWithParent(
  { parentPid }: CommandContext,
  log: EventLog,
  stop: (exitCode: number) => void,
): void {
  const parent = parentPid();
  const timer = setInterval(() => {
    if (parentPid() === parent) return;
    clearInterval(timer);
    log.event('the shell that npm started has ended; stopping', {});
    stop(0);
  }, PARENT_CHECK_MS);
  timer.unref();
}

/** Reloads the certificate on SIGHUP. Without TLS the signal keeps its default action. */
function reloadOnSighup({ signals }: CommandContext, { tls }: Server, log: EventLog): void {
  if (tls === undefined) return;
  signals.on('SIGHUP', () => {
    try {
      log.event('the certificate was reloaded', { validTo: tls.renew() });
    } catch (err: unknown) {
      log.event('the certificate could not be reloaded; the previous one stays in use', { err });
    }
  });
}

function shouldCreateFirstToken({ env }: CommandContext, { databaseUrl }: Config): boolean {
  return env.NODE_ENV !== 'production' && isEmbedded(databaseUrl);
}

async function warnWithoutTokens({ store }: Server, { oidcIssuer }: Config, log: EventLog): Promise<void> {
  if (oidcIssuer !== '') return;
  // If the lookup fails, skips the warning: each request reports a store that does not respond.
  const hasTokens = await store.hasTokens().catch(() => true);
  if (!hasTokens)
    log.event(
      'no tokens yet, so every request for plants gets 401; create one: plant-store token create OWNER',
      {},
    );
}

async function welcome({ store, url }: Server, audit: Audit): Promise<string> {
  const secret = mintSecret();
  const now = Date.now();
  const expiresAt = parseExpires(DEFAULT_EXPIRES, now) ?? null;
  const token = newToken(secret, FIRST_OWNER, { scopes, expiresAt, name: 'created by the first start' }, now);
  await store.write({ kind: 'createToken', token });
  audit.tokenCreated(token);
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
