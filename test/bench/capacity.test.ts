import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { calibrate, predict, type Sample } from '../../bench/capacity/calibrate.ts';
import { exponential, zipf } from '../../bench/capacity/clients.ts';
import { Clock } from '../../bench/capacity/clock.ts';
import { type Costs, defaultLimits, type Kind, type Plan } from '../../bench/capacity/model.ts';
import { Machine } from '../../bench/capacity/resources.ts';
import { saturate } from '../../bench/capacity/saturation.ts';
import { type Result, simulate } from '../../bench/capacity/simulate.ts';
import { whole } from '../../bench/report/table.ts';
import { createRandom } from '../support/data/seeded-random.ts';

const COSTS: Costs = {
  service: { createUs: 50, batchUs: 30, listUs: 100, rejectUs: 20, background: 0 },
  database: { createUs: 5, batchUs: 200, listUs: 50 },
  syncMs: 0.5,
  generatorUs: 10,
  crowding: { create: 0, list: 0 },
};

const PLAN: Plan = {
  ...{ engine: 'postgres', instances: 1, nodes: 1, owners: 100, skew: 0, creates: 1 },
  ...{
    load: { connections: 64 },
    layout: 'separate',
    cores: 2,
    otherCores: 0,
    networkMs: 0,
    limits: defaultLimits,
  },
  ...{ retries: 0, failoverSeconds: 1, faults: [], seconds: 5, warmUp: 1, seed: 1 },
};

test('rounded figures have separators, and no minus before a zero', () => {
  assert.deepEqual([1_234.5, -1.6, 0.4, -0.4].map(whole), ['1,235', '-2', '0', '0']);
});

/** Lists from memory: one queue, whose service time is always the same. */
const LISTS: Plan = { ...PLAN, engine: 'sqlite', creates: 0, seconds: 30 };
const LIST_MS = COSTS.service.listUs / 1_000;

function assertNear(actual: number, expected: number, share = 0.03): void {
  assert.ok(
    Math.abs(actual / expected - 1) <= share,
    `${actual} is not within ${share * 100} % of ${expected}`,
  );
}

function shareOf({ uses }: Pick<Result, 'uses'>, name: string): number {
  const use = uses.find((one) => one.name === name);
  assert.ok(use, `no resource is named ${name}`);
  return use.share;
}

const sumOf = (counts: Result['ended']): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

describe('queues', () => {
  for (const [cores, load] of [
    [1, 0.3],
    [1, 0.8],
    [2, 0.8],
  ] as const) {
    test(`M/M/${cores} at ${load * 100} % → response time of theory`, () => {
      const clock = new Clock();
      const random = createRandom(1);
      const machine = new Machine(clock, cores);
      const rate = cores * load;
      let [sum, count] = [0, 0];
      const arrive = (): void => {
        const since = clock.now;
        machine.run(
          () => exponential(random),
          () => {
            sum += clock.now - since;
            count += 1;
          },
        );
        clock.after(exponential(random) / rate, arrive);
      };
      arrive();
      clock.runUntil(200_000);
      // Erlang C for one or two servers with a mean service time of 1.
      assertNear(sum / count, cores === 1 ? 1 / (1 - load) : 1 / (1 - load ** 2), 0.05);
      assertNear(machine.busy.read() / cores / clock.now, load);
    });
  }

  for (const load of [0.3, 0.6, 0.9]) {
    test(`lists at ${load * 100} % of the main thread → response time of M/D/1`, () => {
      const result = simulate({ ...LISTS, load: { perSecond: (load * 1_000) / LIST_MS } }, COSTS);
      // Pollaczek and Khinchine, for a constant service time.
      assertNear(result.meanMs, LIST_MS * (1 + load / (2 * (1 - load))), 0.05);
      assertNear(shareOf(result, 'main thread of instance 0'), load);
    });
  }

  test('more lists than the main thread can answer → saturation at its rate', () => {
    const result = simulate({ ...LISTS, seconds: 5 }, COSTS);
    assertNear(result.perSecond, 1_000 / LIST_MS);
    assertNear(shareOf(result, 'main thread of instance 0'), 1);
    assertNear(result.meanMs, 64 * LIST_MS);
  });
});

describe('service', () => {
  test('same seed → same result; another seed → another', () => {
    const plan = { ...PLAN, skew: 1, creates: 0.5, seconds: 1, load: { perSecond: 5_000 } };
    assert.deepEqual(simulate(plan, COSTS), simulate(plan, COSTS));
    assert.notDeepEqual(simulate(plan, COSTS), simulate({ ...plan, seed: 2 }, COSTS));
  });

  test('creates share commits: the disk allows 2,000 syncs a second, and more creates succeed', () => {
    const { perSecond } = simulate({ ...PLAN, engine: 'sqlite', cores: 4 }, COSTS);
    assert.ok(perSecond > 10_000, `${perSecond} creates a second`);
  });

  test('main thread saturated → one more instance helps most', () => {
    const { limits, additions } = saturate({ ...PLAN, creates: 0, cores: 8 }, COSTS);
    assert.deepEqual(
      limits.map(({ name }) => name),
      ['main thread of instance 0'],
    );
    assert.equal(additions[0]?.what, 'one more instance');
    assertNear(additions[0].perSecond, 20_000);
  });

  test('database saturated → one more node helps most, and one more instance does not', () => {
    const costs = { ...COSTS, database: { ...COSTS.database, listUs: 1_000 } };
    const { full, limits, additions } = saturate({ ...PLAN, creates: 0, instances: 4 }, costs);
    assertNear(full.perSecond, 2_000);
    assert.deepEqual(
      limits.map(({ name }) => name),
      ['cores of node 0'],
    );
    const helps = new Map(additions.map((one) => [one.what, one.helps]));
    assert.deepEqual([helps.get('one more database node'), helps.get('one more instance')], [true, false]);
  });

  test('all requests of one owner → one more node does not help', () => {
    const costs = { ...COSTS, database: { ...COSTS.database, listUs: 1_000 } };
    const { additions } = saturate({ ...PLAN, creates: 0, instances: 4, owners: 1 }, costs);
    assert.equal(additions.find(({ what }) => what === 'one more database node')?.helps, false);
  });

  test('more requests in flight than --max-in-flight → 50301 at once, and the others succeed', () => {
    const slow = { ...COSTS, syncMs: 100 };
    const load = { perSecond: 10_000 };
    const { ended, p99Ms } = simulate({ ...PLAN, load }, slow);
    assert.ok(ended.overloaded > 0 && ended.ok > 0);
    // A create waits for up to two syncs before its own.
    assert.ok(p99Ms < 350, `p99 is ${p99Ms} ms`);
    const { ended: ofMany } = simulate(
      { ...PLAN, load, limits: { ...defaultLimits, maxInFlight: 8_192 } },
      slow,
    );
    assert.equal(ofMany.overloaded, 0);
  });

  test('one owner gets three quarters of --max-in-flight', () => {
    const slow = { ...COSTS, syncMs: 10_000 };
    const plan = { ...PLAN, owners: 1, load: { perSecond: 1_000 }, warmUp: 0, seconds: 1 };
    const { ended } = simulate(plan, slow);
    assert.equal(ended.ok, 0);
    const { ended: ofMany } = simulate({ ...plan, owners: 1_000 }, slow);
    const difference = ended.overloaded - ofMany.overloaded;
    assertNear(difference, defaultLimits.maxInFlight / 4, 0.05);
  });

  test('--token-rate-limit → each instance answers as many requests of an owner in a minute', () => {
    const limits = { ...defaultLimits, tokenRateLimit: 300 };
    const plan = {
      ...PLAN,
      instances: 2,
      owners: 3,
      warmUp: 0,
      seconds: 59,
      load: { perSecond: 200 },
      limits,
    };
    const { ended } = simulate(plan, COSTS);
    assert.equal(ended.ok, 2 * 3 * 300);
    assert.equal(ended.limited, sumOf(ended) - ended.ok);
  });
});

describe('faults', () => {
  const load = { perSecond: 6_000 };
  const base: Plan = { ...PLAN, instances: 3, cores: 8, retries: 3, creates: 0, load };
  const SHARE = (2_000 * COSTS.service.listUs) / 1e6;

  test('an instance is lost → the others take over its load, and retries succeed', () => {
    const healthy = simulate(base, COSTS);
    const { ended, uses, retries } = simulate(
      { ...base, faults: [{ what: 'instance', index: 1, at: 1.5, seconds: 60 }] },
      COSTS,
    );
    assertNear(shareOf(healthy, 'main thread of instance 2'), SHARE);
    const lost = 4.5 / 5;
    assertNear(shareOf({ uses }, 'main thread of instance 2'), SHARE * (1 + lost), 0.05);
    assert.ok(retries > 0);
    assert.equal(sumOf(ended), ended.ok);
  });

  test('a database node is lost → 503 until the failover, then another node takes over its load', () => {
    const plan: Plan = { ...base, nodes: 2, retries: 0, seconds: 20, failoverSeconds: 2 };
    const healthy = simulate(plan, COSTS);
    const { ended, uses } = simulate(
      { ...plan, faults: [{ what: 'node', index: 0, at: 1, seconds: 60 }] },
      COSTS,
    );
    assert.ok(ended.unavailable + ended.overloaded > 0);
    assertNear(shareOf({ uses }, 'cores of node 1') / shareOf(healthy, 'cores of node 1'), 2, 0.2);
  });
});

test('Zipf → the first owner has the share of theory', () => {
  const pick = zipf(100, 1, createRandom(1));
  const picks = Array.from({ length: 100_000 }, pick);
  const harmonic = Array.from({ length: 100 }, (_, n) => 1 / (n + 1)).reduce((sum, part) => sum + part, 0);
  assertNear(picks.filter((owner) => owner === 0).length / picks.length, 1 / harmonic);
});

const kinds = ['create', 'list'] as const;
const NO_CPU = { main: 0, background: 0, database: 0, generators: 0, others: 0, stolen: 0 };
const NO_BYTES = { log: 0, store: 0, written: 0 };

describe('calibration', () => {
  const machine = { engine: 'postgres', cores: 2 } as const;
  const truth: Costs = {
    ...COSTS,
    service: { ...COSTS.service, batchUs: 0 },
    database: { ...COSTS.database, batchUs: 0 },
    crowding: { create: 0.3, list: 0.1 },
  };

  /** A load as a machine with the true costs would show it. CPU times lack a third, which is spent in waits. */
  function sampleOf(kind: Kind, instances: number, others: number): Sample {
    const load = {
      ...{ answers: 1, perSecond: 1, failures: 0, batches: 0 },
      cpu: { ...NO_CPU, others },
      bytes: NO_BYTES,
    };
    const sample = { kind, instances, connections: 48, load };
    const perSecond = predict(sample, truth, machine);
    const { service, database, generatorUs } = truth;
    const [main, ofDatabase] =
      kind === 'create' ? [service.createUs, database.createUs] : [service.listUs, database.listUs];
    const seconds = (us: number): number => (us / 1e6) * perSecond;
    const cpu = {
      ...{ ...NO_CPU, others, generators: seconds(generatorUs) },
      ...{ main: seconds(main) / 1.5, database: seconds(ofDatabase) / 1.5 },
    };
    return { ...sample, load: { ...load, answers: perSecond, perSecond, cpu } };
  }

  test('CPU time grows faster than the number of batches → no negative cost', () => {
    const list = sampleOf('list', 1, 0);
    const { load } = sampleOf('create', 1, 0);
    for (let run = 0; run < 200; run += 1) {
      const creates = [1, 4, 16, 32].map((connections, n): Sample => {
        const answers = 1_000 * (n + 1) + run;
        const batches = Math.floor(answers / connections);
        const cpu = { ...NO_CPU, main: batches ** 2 / 1e7 };
        return { kind: 'create', instances: 1, connections, load: { ...load, answers, batches, cpu } };
      });
      const alone = [...creates, list];
      const { service } = calibrate({ ...machine, syncMs: 1, alone, rejected: list.load, full: [] });
      assert.ok(service.createUs >= 0, `${service.createUs} µs`);
    }
  });

  test('one and three instances, next to other processes → predicts two and four without them', () => {
    const full = kinds.flatMap((kind) => [sampleOf(kind, 1, 0.3), sampleOf(kind, 3, 0.5)]);
    const alone = full.filter(({ instances }) => instances === 1);
    const [{ load: rejected } = assert.fail()] = alone;
    const costs = calibrate({ ...machine, syncMs: truth.syncMs, alone, rejected, full });
    for (const instances of [2, 4])
      for (const kind of kinds) {
        const sample = sampleOf(kind, instances, 0);
        assertNear(predict(sample, costs, machine), sample.load.perSecond, 0.1);
      }
  });
});
