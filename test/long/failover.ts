import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { readFlags } from '../support/script-flags.ts';
import { type PostgresServer, startPair } from '../support/servers/postgres-server.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';
import { bearer } from '../support/service.ts';
import {
  type Addressed,
  Client,
  createToken,
  startInstances,
  stopInOrder,
} from '../support/service-instances.ts';
import { type Balance, Ledger } from '../support/write-ledger.ts';

interface Failover {
  readonly balance: Balance;
  /** Milliseconds from the crash of the primary until every instance had acknowledged a write. */
  readonly outage: number;
  /** The part of it after the promotion of the standby. */
  readonly recovery: number;
}

interface FailoverOptions {
  /** Failure of the primary. A crash closes its connections; silence, of the server or its network, leaves them open. */
  readonly death: 'crash' | 'silence';
  /** Variables of the instances. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Acknowledgements to wait for before and after; each means several writes. */
  readonly acknowledgements: number;
  /** Lines of postgresql.conf, for both servers. */
  readonly settings: readonly string[];
}

/**
 * Two instances of the service follow a primary with a synchronous standby by one URL. The primary fails under load
 * and the standby is promoted. Then compares the store with the acknowledged writes, and rejects when they differ.
 */
export async function failOver(
  t: Pick<TestContext, 'after'>,
  { death, acknowledgements, settings, environment }: FailoverOptions,
): Promise<Failover> {
  const { primary, standby } = await startPair(t, { settings });
  await makeSynchronous(primary);
  const network = await startTcpProxy(t, primary.port);
  const port = death === 'silence' ? network.port : primary.port;
  const url = `postgres://postgres@127.0.0.1:${port},127.0.0.1:${standby.port}/postgres`;
  const instances = await startInstances(t, url, 2, environment);
  const { secret } = await createToken(url);
  const { secret: probe } = await createToken(url, 'probe');
  const ledger = new Ledger({ fronts: instances, token: secret, writers: 16 });
  await pass(ledger, acknowledgements);

  const killed = performance.now();
  if (death === 'silence') network.stall();
  await primary.stop('immediate');
  await standby.sql('SELECT pg_promote()');
  const promoted = performance.now();
  await Promise.all(instances.map((instance, id) => createAt(instance, probe, id)));
  const back = performance.now();

  await pass(ledger, acknowledgements);
  const balance = await ledger.settle();
  await stopInOrder(instances);
  return { balance, outage: back - killed, recovery: back - promoted };
}

/** Creates a plant at an instance, and retries while it is unavailable. */
async function createAt(instance: Addressed, secret: string, id: number): Promise<void> {
  const client = new Client();
  const headers = { ...bearer(secret), 'content-type': 'application/json' };
  const question = {
    method: 'POST',
    path: '/plants',
    headers,
    body: JSON.stringify({ id, name: 'probe' }),
  } as const;
  let answer = await client.ask(instance, question);
  while (answer.status === 503) {
    await setTimeout(20);
    answer = await client.ask(instance, question);
  }
  client.close();
  // An attempt that got a 503 may have executed.
  if (answer.status !== 200 && !answer.body.includes('"error":40002')) throw new Error(answer.body);
}

async function pass(ledger: Ledger, acknowledgements: number): Promise<void> {
  for (let count = 0; count < acknowledgements; count += 1) await ledger.nextAcknowledged();
}

async function makeSynchronous(primary: PostgresServer): Promise<void> {
  await primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
  await primary.sql('SELECT pg_reload_conf()');
  while (!(await isSynchronous(primary))) await setTimeout(20);
}

async function isSynchronous(primary: PostgresServer): Promise<boolean> {
  const rows = await primary.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
  return rows.length > 0;
}

async function main(): Promise<void> {
  const values = readFlags(
    'Makes the primary of a PostgreSQL fail under load, promotes its standby, and checks that no acknowledged write is lost.',
    {
      acknowledgements: { type: 'string', default: '500', about: 'number to wait for before and after' },
      death: {
        type: 'string',
        default: 'crash',
        takes: 'crash|silence',
        about: 'whether its connections are closed or left open',
      },
    },
  );
  const death = values.death === 'silence' ? 'silence' : 'crash';
  const releases: (() => unknown)[] = [];
  try {
    const scope = { after: (release: () => unknown) => void releases.unshift(release) };
    const acknowledgements = Number(values.acknowledgements);
    const { balance, outage, recovery } = await failOver(scope, { death, acknowledgements, settings: [] });
    process.stdout.write(`no acknowledged write is lost: ${JSON.stringify(balance)}\n`);
    process.stdout.write(
      `every instance acknowledged a write ${outage.toFixed(0)} ms after the primary died, ${recovery.toFixed(0)} ms after the promotion\n`,
    );
  } finally {
    for (const release of releases) await release();
  }
}

if (import.meta.main) await main();
