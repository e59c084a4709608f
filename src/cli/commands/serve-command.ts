import { setFlagsFromString } from 'node:v8';
import { Command } from 'commander';
import type { Logger } from 'pino';
import { type Config, type Flags, wantsTraces } from '../../config.ts';
import { type Audit, createAudit } from '../../observability/audit-log.ts';
import { createLog } from '../../observability/log.ts';
import { type Server, STOP_MS, startServer } from '../../server.ts';
import { isEmbedded } from '../../store/open-engine.ts';
import { DEFAULT_EXPIRES, mintSecret, newToken, parseExpires, scopes } from '../../token.ts';
import { addSettings, configOf } from '../flags.ts';

const FIRST_OWNER = 'default';

/** Beside the pause before it stops: a process that still lives this long after it was told to stop is ended. */
export const SHUTDOWN_MS = STOP_MS + 500;

/** Ctrl-C under npm arrives twice, once from the terminal and once from npm; only a later one means hurry. */
const SAME_SIGNAL_MS = 500;

export function serveCommand(): Command {
  const command = new Command('serve').description('migrates the store and serves it');
  return addSettings(command).action(async (flags: Flags) => {
    const config = configOf(flags);
    const serviceLog = await createLog(config.logLevel);
    const { log } = serviceLog;
    const broken = Promise.withResolvers<Error>();
    const traces = wantsTraces(process.env);
    const starting = startServer({ config, serviceLog, traces, onFatal: broken.resolve });
    const stop = stopOnSignal(starting, log, config.stopDelay + SHUTDOWN_MS);
    void broken.promise.then((err) => {
      log.fatal({ err }, 'the store cannot be trusted any more; stopping. Check it before the next start');
      stop(1);
    });
    const server = await starting;
    disableAllocationSitePretenuring();
    renewOnSighup(server, log);
    // Whoever waits for the service reads so from the log, and what is printed below belongs behind it.
    log.flush();
    if (!makesFirstToken(config)) return warnWithoutTokens(server, config, log);
    try {
      if (!(await server.store.hasTokens())) process.stdout.write(await welcome(server, createAudit(log)));
    } catch (err: unknown) {
      log.fatal({ err }, 'the first token could not be made; stopping');
      stop(1);
    }
  });
}

/**
 * Stops V8 from making objects old where others outlived a collection ("Memento Mori", Clifford et al., ISMM 2015,
 * pp. 105-117). After a crowd of requests it takes the listeners of each later one for lasting, and these keep the
 * whole request until the next full collection (docs/performance.md). Not before the start is over: the code that Node
 * brings compiled is valid for V8's own flags alone.
 */
function disableAllocationSitePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/** Stops the server on signals and on errors that nobody foresaw, also while it starts. Returns what stops it. */
function stopOnSignal(starting: Promise<Server>, log: Logger, graceMs: number): (exitCode: number) => void {
  let stoppingSince: number | undefined;
  let exitCode = 0;

  function stop(code: number): void {
    exitCode = Math.max(exitCode, code);
    if (stoppingSince !== undefined) return;
    stoppingSince = performance.now();
    setTimeout(() => {
      log.error('requests did not finish in time; ending');
      process.exit(1);
    }, graceMs).unref();
    void close();
  }

  async function close(): Promise<void> {
    // Why a start failed is told by whoever started it.
    const server = await starting.catch(() => undefined);
    if (server === undefined) return;
    try {
      await server.close('calmly');
      log.info('stopped');
      process.exit(exitCode);
    } catch (err: unknown) {
      log.error({ err }, 'could not stop properly');
      process.exit(1);
    }
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (stoppingSince !== undefined && performance.now() - stoppingSince > SAME_SIGNAL_MS) process.exit(1);
      log.info({ signal }, 'stopping');
      stop(0);
    });
  }
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (err: unknown) => {
      log.fatal({ err }, 'unexpected; stopping');
      stop(1);
    });
  }
  return stop;
}

/** Without TLS the signal keeps its usual meaning: the terminal is gone. */
function renewOnSighup({ tls }: Server, log: Logger): void {
  if (tls === undefined) return;
  process.on('SIGHUP', () => {
    try {
      log.info({ validTo: tls.renew() }, 'the certificate was read again');
    } catch (err: unknown) {
      log.error({ err }, 'the certificate could not be read again; the one before stays');
    }
  });
}

function makesFirstToken({ databaseUrl }: Config): boolean {
  return process.env.NODE_ENV !== 'production' && isEmbedded(databaseUrl);
}

async function warnWithoutTokens({ store }: Server, { oidcIssuer }: Config, log: Logger): Promise<void> {
  if (oidcIssuer !== '') return;
  // A store that does not answer says so itself, at every request.
  const hasTokens = await store.hasTokens().catch(() => true);
  if (!hasTokens) log.warn('no tokens yet, so nobody is let in; make one: plant-store token create OWNER');
}

async function welcome({ store, url }: Server, audit: Audit): Promise<string> {
  const secret = mintSecret();
  const now = Date.now();
  const expiresAt = parseExpires(DEFAULT_EXPIRES, now) ?? null;
  const token = newToken(secret, FIRST_OWNER, { scopes, expiresAt, name: 'made by the first start' }, now);
  await store.write({ kind: 'createToken', token });
  audit.tokenCreated(token);
  const authorization = `-H 'Authorization: Bearer ${secret}'`;
  return [
    '',
    `This store is new. Here is a token for its owner "${FIRST_OWNER}"; it is shown this once and expires in ${DEFAULT_EXPIRES.replace('d', ' days')}:`,
    '',
    `  ${secret}`,
    '',
    `Create a plant, list all, delete it, here or in a browser at ${url}/docs:`,
    '',
    `  curl ${url}/plants ${authorization} -H 'Content-Type: application/json' -d '{"id":1,"name":"Black alder","tag":"Alnus glutinosa"}'`,
    `  curl ${url}/plants ${authorization}`,
    `  curl -X DELETE ${url}/plants/1 ${authorization}`,
    '',
    '',
  ].join('\n');
}
