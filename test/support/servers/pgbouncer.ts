import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { freePort } from './free-port.ts';
import { account } from './process-tree.ts';

/** First version of PgBouncer with prepared statements in transaction mode: 1.21. */
const KEEPS_STATEMENTS_SINCE = 1_021;

/** Returns the version of PgBouncer: 1018 means 1.18. Undefined when it is not installed. */
function findPgBouncer(): number | undefined {
  const { stdout } = spawnSync('pgbouncer', ['--version'], { encoding: 'utf8' });
  const version = /PgBouncer (\d+)\.(\d+)/.exec(stdout ?? '');
  return version === null ? undefined : Number(version[1]) * 1_000 + Number(version[2]);
}

const version = findPgBouncer();
export const HAS_PGBOUNCER = version !== undefined;
export const KEEPS_STATEMENTS = version !== undefined && version >= KEEPS_STATEMENTS_SINCE;

/** Number of connections to the server. */
export const POOL_SIZE = 3;

interface PgBouncer {
  readonly port: number;
  kill(signal: NodeJS.Signals): void;
  /** Resolves when PgBouncer has exited. */
  ended(): Promise<unknown>;
  start(): Promise<void>;
}

/** Starts PgBouncer in transaction mode in front of a PostgreSQL server, with few server connections. */
export async function startPgBouncer(t: Pick<TestContext, 'after'>, server: URL): Promise<PgBouncer> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-pgbouncer-'));
  const port = await freePort();
  const file = join(folder, 'pgbouncer.ini');
  const password = server.password === '' ? '' : ` password=${server.password}`;
  const lines = [
    '[databases]',
    `* = host=${server.hostname} port=${server.port} user=${server.username}${password}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    'pool_mode = transaction',
    `default_pool_size = ${POOL_SIZE}`,
    ...(KEEPS_STATEMENTS ? ['max_prepared_statements = 100'] : []),
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  if (account.uid !== undefined) await chown(folder, account.uid, account.gid);
  let child: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();

  async function start(): Promise<void> {
    const started = Promise.withResolvers<void>();
    let log = '';
    const process = spawn('pgbouncer', [file], { ...account, stdio: ['ignore', 'ignore', 'pipe'] });
    child = process;
    exited = once(process, 'exit');
    process.stderr.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-10_000);
      if (log.includes('process up')) started.resolve();
    });
    process.once('exit', (code) => started.reject(new Error(`PgBouncer ended with ${code}: ${log}`)));
    await started.promise;
  }

  t.after(async () => {
    child?.kill('SIGKILL');
    await exited;
    await rm(folder, { recursive: true });
  });
  await start();
  return { port, kill: (signal) => void child?.kill(signal), ended: () => exited, start };
}
