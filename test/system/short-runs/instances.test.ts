import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { GRACE_MS } from '../../../src/server.ts';
import { openStore } from '../../../src/store/open-engine.ts';
import { migratePostgres } from '../../../src/store/postgres/migrate.ts';
import type { Store, Write } from '../../../src/store/store.ts';
import { mintSecret, newToken, scopes } from '../../../src/token.ts';
import { describeRecording, recordWorkload } from '../../long/instances.ts';
import { deadlocksIn, execute, postgres } from '../../support/engines.ts';
import { REJECT_SEVERAL_OWNERS } from '../../support/faults/citus-delete-limit.ts';
import { describeViolation, findViolation } from '../../support/linearizability.ts';
import { bearer } from '../../support/service.ts';
import {
  type Answer,
  createToken,
  type Instance,
  type Question,
  RoundRobin,
  startInstances,
} from '../../support/service-instances.ts';
import { create as newCreation } from '../../support/store-setup.ts';

const INSTANCES = 3;

const releases: (() => unknown)[] = [];
const file = { after: (release: () => unknown) => void releases.unshift(release) };

let databaseUrl: string;
let instances: readonly Instance[];
let balancer: RoundRobin;

before(async () => {
  databaseUrl = await freshDatabase(file);
  instances = await startInstances(file, databaseUrl, INSTANCES);
  balancer = new RoundRobin(instances);
});

after(async () => {
  balancer.close();
  for (const release of releases) await release();
});

async function freshDatabase(scope: Pick<TestContext, 'after'>): Promise<string> {
  return postgres.freshUrl(scope);
}

test('acknowledged writes are visible on every instance immediately; histories are linearizable', async () => {
  const { secret } = await createToken(databaseUrl);
  const workload = { fronts: instances, token: secret, clients: 32, hotPlants: 8, seconds: 2, atLeast: 500 };
  const recording = await recordWorkload(workload);
  assert.deepEqual(recording.surprises, []);
  assert.deepEqual(recording.unseen, []);
  const { hotWrites, coldWrites } = recording.times;
  // Far fewer than on an idle machine: the test checks correctness, not throughput.
  assert.ok(hotWrites.length > 20 && coldWrites.length > 20, describeRecording(recording));
  const violation = findViolation(recording.operations);
  if (violation !== undefined) assert.fail(describeViolation(violation));
});

test('same Idempotency-Key on all instances at once → one plant, equal responses', async () => {
  const { secret } = await createToken(databaseUrl, 'keys');
  const rounds = Array.from({ length: 40 }, (_, index) => index + 1);
  await Promise.all(
    rounds.map(async (id) => {
      const body = JSON.stringify({ id, name: `plant ${id}`, tag: 'keyed' });
      const answers = await Promise.all(instances.map((one) => create(one, secret, body, `key-${id}`)));
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200, 200],
      );
      assert.deepEqual(new Set(answers.map((answer) => answer.body)).size, 1);
      const replayed = answers.filter(({ headers }) => headers['idempotent-replayed'] === 'true');
      assert.equal(replayed.length, INSTANCES - 1);
    }),
  );
  const list = await balancer.ask({ method: 'GET', path: '/plants', headers: bearer(secret) });
  const plants: { name: string }[] = JSON.parse(list.body);
  assert.deepEqual(
    plants.map(({ name }) => name),
    rounds.map((id) => `plant ${id}`),
  );
});

test('same Idempotency-Key with different plants on all instances at once → one plant is created', async () => {
  const { secret } = await createToken(databaseUrl, 'reusers');
  for (let round = 0; round < 10; round += 1) {
    const answers = await Promise.all(
      instances.map((one, index) => {
        const body = JSON.stringify({ id: 10 * round + index, name: 'plant' });
        return create(one, secret, body, `key-${round}`);
      }),
    );
    const errors = answers.map(({ status, body }) => (status === 200 ? 'created' : errorIn(body)));
    assert.deepEqual(errors.toSorted(), [40003, 40003, 'created']);
  }
});

function create(instance: Instance, token: string, body: string, key: string): Promise<Answer> {
  const headers = { ...bearer(token), 'content-type': 'application/json', 'idempotency-key': key };
  return balancer.client.ask(instance, { method: 'POST', path: '/plants', headers, body });
}

function errorIn(body: string): number {
  const { error }: { error: number } = JSON.parse(body);
  return error;
}

test('revoked token → rejected by every instance within a second', async () => {
  const { secret, id } = await createToken(databaseUrl, 'revoked');
  const list = { method: 'GET', path: '/plants?limit=0', headers: bearer(secret) } as const;
  const store = await openOn(databaseUrl);
  let revokedAt = Number.POSITIVE_INFINITY;
  const opened = instances.map(() => Promise.withResolvers<void>());
  const seen = instances.map(async (instance, index) => {
    const statuses = { before: new Set<number>(), after: new Set<number>() };
    while (statuses.after.size === 0 || performance.now() < revokedAt + 1_300) {
      const isAfter = performance.now() >= revokedAt + 1_000;
      const { status } = await balancer.client.ask(instance, list);
      statuses[isAfter ? 'after' : 'before'].add(status);
      if (status === 200) opened[index]?.resolve();
      await setTimeout(10);
    }
    return statuses;
  });
  await Promise.all(opened.map(({ promise }) => promise));
  assert.equal(await store.write({ kind: 'revokeToken', id, at: Date.now() }), 'done');
  revokedAt = performance.now();
  for (const { before: early, after: late } of await Promise.all(seen)) {
    assert.ok(early.has(200), 'the token opened the list before');
    assert.deepEqual([...late], [401]);
  }
  await store.close();
});

function openOn(url: string): Promise<Store> {
  return openStore(url, {
    onFatal: (error) => {
      throw error;
    },
    now: Date.now,
    connections: { poolSize: 4, acquireTimeoutMs: 10_000, statementTimeoutMs: 10_000, prepare: true },
  });
}

function shuffled<T>(values: readonly T[]): T[] {
  return values
    .map((value) => ({ value, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ value }) => value);
}

/** Several owners, whose plants share batches. */
const ownerOf = (id: number): string => `crowd ${id % 3}`;

const creation = (id: number): Write => newCreation(BigInt(id), { owner: ownerOf(id) });

const keyedCreation = (id: number, key: number): Write =>
  newCreation(BigInt(id), { owner: ownerOf(id), idempotencyKey: `key ${key}` });

const deletion = (id: number): Write => ({
  kind: 'deletePlant',
  owner: ownerOf(id),
  id: BigInt(id),
});

for (const how of ['all together', 'owner by owner'])
  test(`concurrent changes of the same plants in any order, ${how} → no deadlock`, async (t) => {
    const url = await freshDatabase(t);
    await migratePostgres(url);
    if (how === 'owner by owner') await execute(url, REJECT_SEVERAL_OWNERS);
    const stores = await Promise.all(Array.from({ length: INSTANCES }, () => openOn(url)));
    const ids = Array.from({ length: 24 }, (_, index) => index);
    const until = performance.now() + 1_000;
    const crowd = stores.flatMap((store) =>
      Array.from({ length: 6 }, async () => {
        while (performance.now() < until) {
          const writes = shuffled(ids).flatMap((id) => [
            creation(id),
            deletion(id),
            keyedCreation(id, id % 7),
          ]);
          await Promise.all(
            shuffled(writes)
              .slice(0, 20)
              .map((write) => store.write(write)),
          );
        }
      }),
    );
    await Promise.all(crowd);
    for (const store of stores) await store.close();
    assert.equal(await deadlocksIn(url), 0);
  });

for (const how of ['all together', 'owner by owner'])
  test(`concurrent deletions of the same plants in any order, ${how} → no deadlock`, async (t) => {
    const url = await freshDatabase(t);
    await migratePostgres(url);
    if (how === 'owner by owner') await execute(url, REJECT_SEVERAL_OWNERS);
    const stores = await Promise.all(Array.from({ length: INSTANCES }, () => openOn(url)));
    const ids = Array.from({ length: 600 }, (_, index) => index);
    // With many other rows, PostgreSQL looks up the deleted plants by index.
    await execute(
      url,
      "INSERT INTO plants (owner, id, name) SELECT 'others', id, '' FROM generate_series(1, 20000) AS id",
    );
    await execute(url, 'ANALYZE plants');
    for (let round = 0; round < 40; round += 1) {
      await Promise.all(ids.map((id) => stores[0]?.write(creation(id))));
      // Sets of different sizes: PostgreSQL visits sets of equal size in the same order.
      const deletions = stores.flatMap((store) => {
        const some = shuffled(ids).slice(0, 100 + Math.floor(Math.random() * 500));
        return some.map((id) => ({ id, outcome: store.write(deletion(id)) }));
      });
      const deleted: number[] = [];
      for (const { id, outcome } of deletions) if ((await outcome) === 'deleted') deleted.push(id);
      assert.deepEqual(new Set(deleted).size, deleted.length, 'no plant was deleted twice');
      assert.deepEqual(new Set(deleted), new Set(deletions.map(({ id }) => id)));
    }
    for (const store of stores) await store.close();
    assert.equal(await deadlocksIn(url), 0);
  });

test('concurrent recording of the use of the same tokens in any order → no deadlock', async (t) => {
  const url = await freshDatabase(t);
  const stores = await Promise.all(Array.from({ length: INSTANCES }, () => openOn(url)));
  const tokens = Array.from({ length: 40 }, () =>
    newToken(mintSecret(), 'crowd', { scopes, expiresAt: null, name: 'test' }, 0),
  );
  await Promise.all(tokens.map((token) => stores[0]?.write({ kind: 'createToken', token })));
  for (let round = 1; round <= 100; round += 1) {
    const at = round * 3_600_000;
    await Promise.all(
      stores.flatMap((store) =>
        shuffled(tokens).map(({ id }) => store.write({ kind: 'recordTokenUse', id, at })),
      ),
    );
  }
  for (const store of stores) await store.close();
  assert.equal(await deadlocksIn(url), 0);
});

test('rolling restart under load → no request fails', async () => {
  const { secret } = await createToken(databaseUrl, 'restarts');
  const traffic = new Traffic(secret);
  for (const instance of instances) {
    // The clients have open connections before the restart.
    await traffic.pass(12);
    assert.equal(await instance.stop(), 0, instance.output);
    await traffic.pass(4);
    await instance.start();
  }
  await traffic.pass(12);
  await traffic.end();
  assert.deepEqual(traffic.failures, []);
  assert.ok(instances.every(({ accidents }) => accidents === 0));
});

/** Clients that create, list and delete on all instances in turn, and record failures. */
class Traffic {
  readonly failures: string[] = [];
  readonly #token: string;
  readonly #clients: readonly TrafficClient[];
  readonly #running: Promise<unknown>;
  #isOver = false;

  constructor(token: string) {
    this.#token = token;
    this.#clients = Array.from({ length: 12 }, (_, id) => ({
      id,
      balancer: new RoundRobin(instances),
      answeredAt: [],
    }));
    this.#running = Promise.all(this.#clients.map((client) => this.#run(client)));
  }

  /** Resolves after this number of further responses to each client. */
  async pass(responses: number): Promise<void> {
    const goals = this.#clients.map(({ answeredAt }) => answeredAt.length + responses);
    while (this.#clients.some(({ answeredAt }, index) => answeredAt.length < (goals[index] ?? 0)))
      await setTimeout(10);
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }

  async #run(client: TrafficClient): Promise<void> {
    const headers = { 'content-type': 'application/json' };
    while (!this.#isOver) {
      const body = JSON.stringify({ id: client.id, name: 'plant' });
      await this.#ask(client, { method: 'POST', path: '/plants', headers, body }, 200);
      await this.#ask(client, { method: 'GET', path: '/plants?limit=1' }, 200);
      await this.#ask(client, { method: 'DELETE', path: `/plants/${client.id}` }, 204);
    }
    client.balancer.close();
  }

  async #ask(client: TrafficClient, question: Question, expected: number): Promise<void> {
    const headers = { ...bearer(this.#token), ...question.headers };
    // Waits an iteration, so that connections that closed while this process was suspended are noticed.
    await setImmediate();
    try {
      const { status, body } = await client.balancer.ask({ ...question, headers });
      if (status !== expected) this.failures.push(`${question.method}: ${status} ${body}`);
    } catch (error: unknown) {
      if (hasPaused(client)) return this.#ask(client, question, expected);
      this.failures.push(`${question.method}: ${error}`);
    }
    client.answeredAt.push(performance.now());
  }
}

/** Keeps a connection to each instance: a new one may be reset while a listener closes. */
interface TrafficClient {
  readonly id: number;
  readonly balancer: RoundRobin;
  readonly answeredAt: number[];
}

/** True if a connection was unused for so long, on a busy machine, that an instance that stops may close it. */
function hasPaused({ answeredAt }: TrafficClient): boolean {
  const last = answeredAt.at(-INSTANCES);
  return last !== undefined && performance.now() - last > GRACE_MS / 2;
}
