import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startServerProcess } from '../../../bench/contenders/server-process.ts';
import { openBulk } from '../../../src/store/open-engine.ts';
import { connections, execute, rowsOf } from '../../support/engines.ts';
import { plantRow } from '../../support/plants.ts';
import { type Installation, type Lifetime, newInstallation, type Service } from '../../support/program.ts';
import { serve as serveHttp } from '../../support/servers/stub-server.ts';
import { fillStore } from '../long-list.ts';
import type { Attack, Stock } from './attack.ts';

/** The target of an attack: the service, or a bare node:http server. */
export interface Target {
  readonly name: string;
  readonly pid: number;
  readonly url: string;
  readonly adminUrl: string;
  /** Tokens of the attacking owner, and of the other clients. */
  readonly token: string;
  readonly othersToken: string;
  /** The number of plants of the attacking owner; undefined for a target without a store. */
  plants(): Promise<number | undefined>;
  /** Its log lines of level error or fatal. */
  problems(): readonly string[];
  kill(signal: NodeJS.Signals): void;
  /** Stops or resumes the reading of its standard output. */
  setOutputRead(isRead: boolean): Promise<void>;
  /** Stops it. Resolves to the exit code. */
  stop(): Promise<number | null>;
}

type Tokens = Pick<Target, 'token' | 'othersToken'>;

/** A store with tokens for services that run one after the other. */
export interface Grounds {
  readonly engine: string;
  /** Starts a service; `env` overrides the variables of the attack. */
  serve(attack: Attack, isTls: boolean, env?: Readonly<Record<string, string>>): Promise<Target>;
}

const ATTACKER = 'mallory';
const OTHER = 'alice';
const BARE = fileURLToPath(new URL('../../../bench/contenders/bare-node-server.ts', import.meta.url));
const CERTIFICATES = fileURLToPath(new URL('../../support/certificates/', import.meta.url));
/** Longest name that a statement inserts as text. */
const MAX_IN_STATEMENT = 10_000;

export const USUAL_STOCK: Stock = { plants: 1_000, nameLength: 20 };

/** Longer than an attack takes. */
const JWT_SECONDS = 3_600;

const EXIT_LOOK_MS = 20;
const EXIT_WITHIN_MS = 15_000;

/**
 * Filters the log in a child process, which forwards only a few lines: under full load, parsing the log in this
 * process would disturb the measurement. The pid allows pausing it.
 */
const LOG_READER = `mkfifo log; grep --line-buffered -E '"level":[56]0|"msg":"serving"' < log & echo $! > reader; exec "$@" > log`;

/** `databaseUrl` is that of a new store; SQLite by default. */
export async function prepareGrounds(
  lifetime: Lifetime,
  engine: string,
  databaseUrl?: string,
): Promise<Grounds> {
  const installation = await newInstallation(lifetime);
  const url = databaseUrl ?? installation.databaseUrl;
  const local: Tokens = {
    token: await installation.token(ATTACKER, '--database-url', url),
    othersToken: await installation.token(OTHER, '--database-url', url),
  };
  let stocked: Stock | undefined;

  async function serve(attack: Attack, isTls: boolean, env = {}): Promise<Target> {
    const stock = attack.stock ?? USUAL_STOCK;
    // An attack may have created or deleted plants.
    if (stocked !== stock || (await countPlants(url)) !== stock.plants) await fill(url, stock);
    stocked = stock;
    const provided = attack.hasProvider ? await startProvider(lifetime) : { tokens: local, env: {} };
    const service = await installation.serve({
      env: { NODE_ENV: 'production', DATABASE_URL: url, ...provided.env, ...attack.env, ...env },
      flags: isTls
        ? ['--tls-cert', join(CERTIFICATES, 'first.pem'), '--tls-key', join(CERTIFICATES, 'first.key')]
        : [],
      wrap: (command) => ['sh', '-c', `rm -f log; ${LOG_READER}`, 'sh', ...command],
    });
    return targetOf(service, installation, { url, ...provided.tokens });
  }

  return { engine, serve };
}

/** Starts an identity provider. Its signatures are of the kind that takes the longest to verify. */
async function startProvider(lifetime: Lifetime) {
  // The module loads a whole provider, which prints a warning.
  const { AUDIENCE, newSigningKey, sign } = await import('../../support/servers/identity-provider.ts');
  const key = await newSigningKey('key', 'ES512');
  let issuer = '';
  issuer = await serveHttp(lifetime, (_request, response) => {
    response.end(
      JSON.stringify({ issuer, jwks_uri: `${issuer}/keys`, keys: [{ ...key.jwk, d: undefined }] }),
    );
  });
  const exp = Math.floor(Date.now() / 1_000) + JWT_SECONDS;
  const jwtOf = (sub: string): Promise<string> =>
    sign(key, { iss: issuer, aud: AUDIENCE, sub, scope: 'plants:read plants:write', exp }, 'at+jwt');
  const tokens: Tokens = { token: await jwtOf(ATTACKER), othersToken: await jwtOf(OTHER) };
  return { tokens, env: { OIDC_ISSUER: issuer, OIDC_AUDIENCE: AUDIENCE } };
}

async function fill(url: string, { plants, nameLength }: Stock): Promise<void> {
  await execute(url, `DELETE FROM plants WHERE owner = '${ATTACKER}'`);
  // SQLite rejects a statement text with a name this long.
  if (nameLength > MAX_IN_STATEMENT) await fillWithLarge(url, plants, 'n'.repeat(nameLength));
  else await fillStore(url, ATTACKER, plants, nameLength);
}

async function fillWithLarge(url: string, plants: number, name: string): Promise<void> {
  const bulk = await openBulk(url, connections);
  for (let id = 1; id <= plants; id += 1)
    await bulk.savePlants([plantRow(BigInt(id), { owner: ATTACKER, name })], 'fail');
  await bulk.close();
}

async function countPlants(url: string): Promise<number> {
  const rows = await rowsOf(url, `SELECT count(*) AS plants FROM plants WHERE owner = '${ATTACKER}'`);
  return Number(rows[0]?.plants);
}

function targetOf(
  service: Service,
  installation: Installation,
  { url, token, othersToken }: Tokens & { readonly url: string },
): Target {
  const { pid } = service;

  async function setOutputRead(isRead: boolean): Promise<void> {
    const reader = Number(await readFile(join(installation.folder, 'reader'), 'utf8'));
    try {
      process.kill(reader, isRead ? 'SIGCONT' : 'SIGSTOP');
    } catch {
      // The reader ends with the service.
    }
  }

  async function stop(): Promise<number | null> {
    service.kill('SIGTERM');
    const deadline = performance.now() + EXIT_WITHIN_MS;
    const timer = setInterval(() => {
      if (performance.now() > deadline) service.killAll();
    }, EXIT_LOOK_MS);
    while (isRunning(pid) && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, EXIT_LOOK_MS));
    // Resume the reader only now: reading would unblock a service that waits for it.
    await setOutputRead(true);
    const { code } = await service.ended;
    clearInterval(timer);
    return code;
  }

  return {
    name: 'service',
    pid,
    url: service.url,
    adminUrl: service.adminUrl,
    token,
    othersToken,
    plants: () => countPlants(url),
    problems: () => service.log.filter(({ msg }) => msg !== 'serving').map((line) => JSON.stringify(line)),
    kill: (signal) => service.kill(signal),
    setOutputRead,
    stop,
  };
}

/** True if a process exists. */
export function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** A server without a store. Its list has about as many bytes as the list that the attack requests. */
export async function serveBare(logFile: string, { nameLength, plants }: Stock): Promise<Target> {
  const examples = Math.max(20, Math.ceil((plants * nameLength) / 50));
  const server = await startServerProcess([BARE, String(examples)], logFile, 'signal');
  return {
    name: 'bare node:http',
    pid: server.pid,
    url: server.url,
    adminUrl: server.url,
    token: 'none',
    othersToken: 'none',
    plants: async () => undefined,
    problems: () => [],
    kill: (signal) => void process.kill(server.pid, signal),
    setOutputRead: async () => undefined,
    stop: async () => {
      await server.stop();
      return 0;
    },
  };
}
