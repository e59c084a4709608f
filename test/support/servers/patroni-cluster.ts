import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { stringify } from 'yaml';
import { mapOf, readYaml } from '../deploy-files.ts';
import { until } from '../patience.ts';
import { freePort } from './free-port.ts';
import { account, descendants, killAll, send } from './process-tree.ts';
import { startTcpProxy } from './tcp-proxy.ts';

const PASSWORD = 'greenhouse';

/** A PostgreSQL server with the Patroni process that manages it. */
export interface Member {
  readonly name: string;
  readonly port: number;
  /** URL of this PostgreSQL server, for PgBouncer and for tests. */
  readonly url: string;
  /** The proxy between this Patroni and etcd. */
  readonly etcd: Awaited<ReturnType<typeof startTcpProxy>>;
  /** Kills Patroni, its PostgreSQL and all their processes. */
  kill(): Promise<void>;
  start(): void;
  /**
   * Suspends all processes of this server, as if the machine had stopped. Returns a function that resumes
   * them.
   */
  freeze(): Promise<() => void>;
}

interface PatroniCluster {
  readonly members: readonly Member[];
  /** URL with the addresses of all members. */
  readonly url: string;
  /** Seconds after which Patroni replaces a lost primary. */
  readonly ttl: number;
  /** Resolves to the primary that Patroni reports; undefined when Patroni reports none. */
  leader(): Promise<Member | undefined>;
  /** Resolves when the cluster has a primary that all other members follow. */
  healthy(): Promise<void>;
  /** Resolves to the new primary once Patroni has replaced `former`. */
  leaderAfter(former: Member): Promise<Member>;
  /** Makes `to` the primary; without `to`, Patroni chooses the member. Resolves when Patroni has switched. */
  switchOver(to?: Member): Promise<void>;
  /** Suspends etcd. Returns a function that resumes etcd. */
  freezeEtcd(): () => void;
}

interface State {
  readonly name: string;
  readonly role: string;
  readonly state: string;
  readonly timeline: number;
}

/**
 * Starts etcd and three members. They have the configuration of deploy/patroni, with different addresses and
 * without a watchdog. `postgres` is the folder of PostgreSQL's programs.
 */
export async function startPatroniCluster(
  t: Pick<TestContext, 'after'>,
  postgres: string,
): Promise<PatroniCluster> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-patroni-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  await chmod(folder, 0o755);
  const [clientPort, peerPort] = [await freePort(), await freePort()];
  const etcd = spawn(
    'etcd',
    [
      `--data-dir=${join(folder, 'etcd')}`,
      `--listen-client-urls=http://127.0.0.1:${clientPort}`,
      `--advertise-client-urls=http://127.0.0.1:${clientPort}`,
      `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
      `--initial-advertise-peer-urls=http://127.0.0.1:${peerPort}`,
      `--initial-cluster=default=http://127.0.0.1:${peerPort}`,
      '--log-level=error',
    ],
    { stdio: 'ignore' },
  );
  t.after(() => end(etcd));
  await until(() => isOk(`http://127.0.0.1:${clientPort}/health`));

  const [document] = readYaml('deploy/patroni/patroni.yaml');
  if (document === undefined) throw new Error('deploy/patroni/patroni.yaml is empty');
  const ttl = Number(mapOf(mapOf(document.bootstrap).dcs).ttl);
  const members: Member[] = [];
  const restPorts = new Map<string, number>();

  async function addMember(name: string): Promise<Member> {
    const home = join(folder, name);
    const data = join(home, 'data');
    await mkdir(home);
    if (account.uid !== undefined) await chown(home, account.uid, account.gid);
    const [port, restPort] = [await freePort(), await freePort()];
    const proxy = await startTcpProxy(t, clientPort);
    const file = join(home, 'patroni.yaml');
    const config = {
      ...document,
      etcd3: { hosts: `127.0.0.1:${proxy.port}`, use_proxies: true },
      restapi: { listen: `127.0.0.1:${restPort}` },
      postgresql: {
        ...mapOf(document?.postgresql),
        listen: `127.0.0.1:${port}`,
        data_dir: data,
        bin_dir: postgres,
        pgpass: join(home, 'pgpass'),
        parameters: { unix_socket_directories: home },
      },
      watchdog: { mode: 'off' },
    };
    await writeFile(file, stringify(config));
    restPorts.set(name, restPort);
    let child: ChildProcess | undefined;

    function start(): void {
      const log = openSync(join(folder, `${name}.log`), 'a');
      child = spawn('patroni', [file], {
        ...account,
        cwd: home,
        env: {
          PATH: process.env.PATH,
          HOME: home,
          PATRONI_NAME: name,
          PATRONI_RESTAPI_CONNECT_ADDRESS: `127.0.0.1:${restPort}`,
          PATRONI_POSTGRESQL_CONNECT_ADDRESS: `127.0.0.1:${port}`,
          PATRONI_SUPERUSER_PASSWORD: PASSWORD,
          PATRONI_REPLICATION_PASSWORD: PASSWORD,
          PATRONI_REWIND_PASSWORD: PASSWORD,
        },
        stdio: ['ignore', log, log],
      });
      closeSync(log);
    }

    async function roots(): Promise<readonly number[]> {
      const pidFile = await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '');
      const postmaster = Number.parseInt(pidFile, 10);
      return [child?.pid, postmaster].filter((pid): pid is number => pid !== undefined && pid > 0);
    }

    async function stopAll(): Promise<readonly number[]> {
      const targets = await descendants(await roots());
      for (const pid of targets) send(pid, 'SIGSTOP');
      return targets;
    }

    async function kill(): Promise<void> {
      const exited = child === undefined || child.exitCode !== null ? undefined : once(child, 'exit');
      await killAll(await roots());
      await exited;
    }

    async function freeze(): Promise<() => void> {
      // Sends the signal twice: the second signal reaches processes that started after the first.
      const stopped = await stopAll();
      const rest = await stopAll();
      // Resumes PostgreSQL before Patroni. This is the hardest case: for a moment an old primary can accept
      // writes before Patroni stops it.
      return () => {
        for (const pid of new Set([...rest, ...stopped].reverse())) send(pid, 'SIGCONT');
      };
    }

    t.after(kill);
    start();
    const url = `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/postgres`;
    return { name, port, url, etcd: proxy, kill, start, freeze };
  }

  async function states(): Promise<readonly State[]> {
    for (const port of restPorts.values()) {
      const answer = await fetch(`http://127.0.0.1:${port}/cluster`, {
        signal: AbortSignal.timeout(1_000),
      }).catch(() => undefined);
      if (answer?.ok === true) {
        const { members: found }: { members: readonly State[] } = JSON.parse(await answer.text());
        return found;
      }
    }
    return [];
  }

  async function leader(): Promise<Member | undefined> {
    const name = (await states()).find(({ role, state }) => role === 'leader' && state === 'running')?.name;
    return members.find((member) => member.name === name);
  }

  const isHealthy = async (): Promise<boolean> => {
    const found = await states();
    const followers = found.filter(({ role, state }) => role !== 'leader' && state === 'streaming');
    return (
      found.length === members.length &&
      found.some(({ role, state }) => role === 'leader' && state === 'running') &&
      followers.length === members.length - 1 &&
      followers.some(({ role }) => role === 'sync_standby') &&
      new Set(found.map(({ timeline }) => timeline)).size === 1
    );
  };

  async function waitFor<T>(find: () => Promise<T | undefined>, what: string): Promise<T> {
    const deadline = performance.now() + 180_000;
    for (;;) {
      const found = await find();
      if (found !== undefined) return found;
      if (performance.now() > deadline)
        throw new Error(`no ${what} within 3 minutes: ${JSON.stringify(await states())}`);
      await setTimeout(100);
    }
  }

  const cluster: PatroniCluster = {
    members,
    get url() {
      const hosts = members.map(({ port }) => `127.0.0.1:${port}`).join();
      return `postgres://postgres:${PASSWORD}@${hosts}/postgres`;
    },
    ttl,
    leader,
    healthy: async () => {
      await waitFor(async () => ((await isHealthy()) ? true : undefined), 'healthy cluster');
    },
    leaderAfter: (former) =>
      waitFor(async () => {
        const now = await leader();
        return now === former ? undefined : now;
      }, `primary other than ${former.name}`),
    switchOver: async (to) => {
      const from = await leader();
      if (from === undefined) throw new Error('there is no primary');
      const rest = `http://127.0.0.1:${restPorts.get(from.name)}`;
      // Makes all standbys synchronous, since Patroni only promotes a synchronous standby.
      if (to !== undefined) {
        await request('PATCH', `${rest}/config`, { synchronous_node_count: members.length - 1 });
        await waitFor(async () => {
          const state = (await states()).find(({ name }) => name === to.name);
          return state?.role === 'sync_standby' ? true : undefined;
        }, `synchronous ${to.name}`);
      }
      const candidate = to === undefined ? {} : { candidate: to.name };
      await request('POST', `${rest}/switchover`, { leader: from.name, ...candidate });
    },
    freezeEtcd: () => {
      etcd.kill('SIGSTOP');
      return () => void etcd.kill('SIGCONT');
    },
  };
  for (const name of ['plants-1', 'plants-2', 'plants-3']) {
    members.push(await addMember(name));
    // Waits for a primary, since the first member creates the cluster.
    await waitFor(leader, 'primary');
  }
  await cluster.healthy();
  return cluster;
}

async function isOk(url: string): Promise<boolean> {
  const answer = await fetch(url).catch(() => undefined);
  await answer?.body?.cancel();
  return answer?.ok === true;
}

async function request(method: 'POST' | 'PATCH', url: string, body: object): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(url, { method, headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${url} gave ${answer.status} ${await answer.text()}`);
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}
