import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { startPatroniCluster } from '../../support/servers/patroni-cluster.ts';
import { startPgBouncer } from '../../support/servers/pgbouncer.ts';
import { bearer } from '../../support/service.ts';
import {
  type Answer,
  Client,
  createToken,
  startInstances,
  stopInOrder,
} from '../../support/service-instances.ts';
import { Ledger } from '../../support/write-ledger.ts';

type Cluster = Awaited<ReturnType<typeof startPatroniCluster>>;

const LISTS = 8;

const FREEZE_MS = 10_000;

/** Acknowledgements to wait for before each accident. */
const ACKNOWLEDGED = 500;

interface RoleChanges {
  /** Lists through PgBouncer while its server was a standby. */
  readonly lists: number;
  /** Those that were not a 503, or that lacked an acknowledged plant. */
  readonly wrong: readonly string[];
}

/**
 * One instance reaches one server through PgBouncer in transaction mode, another one the cluster. The server becomes a
 * standby and a primary again, `rounds` times. The first instance must read nothing from the standby.
 */
export async function changeRoles(
  t: Pick<TestContext, 'after'>,
  cluster: Cluster,
  rounds: number,
): Promise<RoleChanges> {
  const server = await cluster.leader();
  if (server === undefined) throw new Error('there is no primary');
  const pooler = await startPgBouncer(t, new URL(server.url));
  const pooled = `postgres://postgres@127.0.0.1:${pooler.port}/postgres`;
  const instances = [
    ...(await startInstances(t, pooled, 1, { DATABASE_PREPARE: 'false' })),
    ...(await startInstances(t, cluster.url, 1)),
  ];
  const [behind, direct] = instances;
  if (behind === undefined || direct === undefined) throw new Error('an instance is missing');
  const { secret } = await createToken(cluster.url, 'pooled');
  const client = new Client();
  const headers = { ...bearer(secret), 'content-type': 'application/json' };
  const list = () => client.ask(behind, { method: 'GET', path: '/plants', headers });
  const ready = async () =>
    (await client.ask({ url: behind.adminUrl }, { method: 'GET', path: '/ready' })).status;
  const wrong: string[] = [];
  let lists = 0;

  const insist = async (ask: () => Promise<Answer>): Promise<void> => {
    for (;;) {
      const { status, body } = await ask();
      if (status === 200) return;
      if (status !== 503) throw new Error(`an unexpected response: ${status} ${body}`);
      await setTimeout(50);
    }
  };

  for (let round = 1; round <= rounds; round += 1) {
    // Several connections, all idle afterwards.
    await insist(list);
    await Promise.all(Array.from({ length: LISTS }, list));
    await cluster.switchOver();
    await cluster.leaderAfter(server);
    const name = `plant of round ${round}`;
    const body = JSON.stringify({ id: round, name });
    const keyed = { ...headers, 'idempotency-key': `round-${round}` };
    await insist(() => client.ask(direct, { method: 'POST', path: '/plants', headers: keyed, body }));
    await cluster.healthy();
    for (const answer of await Promise.all(Array.from({ length: LISTS }, list))) {
      lists += 1;
      if (answer.status !== 503) wrong.push(`round ${round}: a list gave ${answer.status}`);
    }
    const status = await ready();
    if (status !== 503) wrong.push(`round ${round}: /ready gave ${status}`);
    await cluster.switchOver(server);
    await insist(list);
    if (!(await list()).body.includes(name)) wrong.push(`round ${round}: the list lacks its plant`);
    await cluster.healthy();
  }
  client.close();
  await stopInOrder(instances);
  return { lists, wrong };
}

/** Restarts, kills and freezes PgBouncer under a load. Rejects when a write is lost. */
export async function troublePooler(t: Pick<TestContext, 'after'>, cluster: Cluster) {
  const server = await cluster.leader();
  if (server === undefined) throw new Error('there is no primary');
  const pooler = await startPgBouncer(t, new URL(server.url));
  const pooled = `postgres://postgres@127.0.0.1:${pooler.port}/postgres`;
  const instances = await startInstances(t, pooled, 2, { DATABASE_PREPARE: 'false' });
  const { secret } = await createToken(cluster.url, 'troubled');
  const ledger = new Ledger({ fronts: instances, token: secret, writers: 8 });
  const away: Record<string, number> = {};
  const accidents: Readonly<Record<string, () => Promise<void>>> = {
    restart: async () => {
      pooler.kill('SIGINT');
      await pooler.ended();
      await pooler.start();
    },
    'kill -9': async () => {
      pooler.kill('SIGKILL');
      await pooler.ended();
      await pooler.start();
    },
    freeze: async () => {
      pooler.kill('SIGSTOP');
      await setTimeout(FREEZE_MS);
      pooler.kill('SIGCONT');
    },
  };
  for (const [name, accident] of Object.entries(accidents)) {
    for (let writes = 0; writes < ACKNOWLEDGED; writes += 1) await ledger.nextAcknowledged();
    ledger.takeLongestSilence();
    await accident();
    await ledger.everyFrontAcknowledged();
    away[name] = ledger.takeLongestSilence() / 1_000;
  }
  const balance = await ledger.settle();
  await stopInOrder(instances);
  return { away, balance };
}
