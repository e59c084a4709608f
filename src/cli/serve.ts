import { Command } from 'commander';
import type { Logger } from 'pino';
import type { Setting } from '../config.ts';
import { createLog } from '../log.ts';
import { type Server, startServer } from '../server.ts';
import { isEmbedded } from '../store/open.ts';
import { DEFAULT_EXPIRES, mintSecret, newToken, parseExpires, scopes } from '../token.ts';
import { addSettings, configOf } from './settings.ts';

const FIRST_OWNER = 'default';

/** Long enough for every client that is busy to have its next answer. */
const LINGER_MS = 500;

/** A process that still lives this long after it was told to stop is ended. */
const SHUTDOWN_MS = 9_500;

/** Ctrl-C under npm arrives twice, once from the terminal and once from npm; only a later one means hurry. */
const SAME_SIGNAL_MS = 500;

export function serveCommand(): Command {
  const command = new Command('serve').description('migrates the store and serves it');
  return addSettings(command).action(async (flags: Readonly<Partial<Record<Setting, string>>>) => {
    const config = configOf(flags);
    const log = createLog(config.logLevel);
    const broken = Promise.withResolvers<Error>();
    const server = await startServer({ config, log, onFatal: broken.resolve });
    stopWhenTold(server, log, broken.promise);
    if (await isFirstStart(server, config.databaseUrl)) process.stdout.write(await welcome(server));
  });
}

function stopWhenTold(server: Server, log: Logger, broken: Promise<Error>): void {
  let stoppingSince: number | undefined;

  function stop(exitCode: number): void {
    const now = performance.now();
    if (stoppingSince !== undefined) {
      if (now - stoppingSince > SAME_SIGNAL_MS) process.exit(1);
      return;
    }
    stoppingSince = now;
    setTimeout(() => {
      log.error('requests did not finish in time; ending');
      process.exit(1);
    }, SHUTDOWN_MS).unref();
    server.close(LINGER_MS).then(
      () => {
        log.info('stopped');
        process.exit(exitCode);
      },
      (err: unknown) => {
        log.error({ err }, 'could not stop properly');
        process.exit(1);
      },
    );
  }

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
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
  void broken.then((err) => {
    log.fatal({ err }, 'the store cannot be trusted any more; stopping. Check it before the next start');
    stop(1);
  });
}

async function isFirstStart({ store }: Server, databaseUrl: string): Promise<boolean> {
  if (process.env.NODE_ENV === 'production' || !isEmbedded(databaseUrl)) return false;
  return (await store.listTokens()).length === 0;
}

async function welcome({ store, url }: Server): Promise<string> {
  const secret = mintSecret();
  const now = Date.now();
  const expiresAt = parseExpires(DEFAULT_EXPIRES, now) ?? null;
  const token = newToken(secret, FIRST_OWNER, { scopes, expiresAt, name: 'made by the first start' }, now);
  await store.write({ kind: 'createToken', token });
  const authorization = `-H 'Authorization: Bearer ${secret}'`;
  return [
    '',
    `This store is new. Here is a token for its owner "${FIRST_OWNER}"; it is shown this once and expires in ${DEFAULT_EXPIRES}:`,
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
