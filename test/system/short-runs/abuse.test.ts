import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { abuse, shortFormOf } from '../../long/abuse/abuse.ts';
import type { Attack, Bounds } from '../../long/abuse/attack.ts';
import { catalogue } from '../../long/abuse/catalogue.ts';
import { type Grounds, prepareGrounds } from '../../long/abuse/target.ts';
import {
  type AbuseFigures,
  abuseFaults,
  isMachineBusy,
  USUAL_BOUNDS,
  withoutSpeed,
} from '../../long/abuse/verdict.ts';
import { engines, sqlite, type TestEngine } from '../../support/engines.ts';
import { needs } from '../../support/needs.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';

/** Wider bounds on time. `npm run test:abuse` checks the promised ones, on an idle machine. */
const SLACK = 8;

const attacks = catalogue.flatMap((row) => shortFormOf(row) ?? []);
const { true: ofEngines = [], false: ofOne = [] } = Object.groupBy(
  attacks,
  ({ bothEngines = false }) => `${bothEngines}`,
);

/** Attacks whose limits count what waits in a socket, which is another kind over TLS. */
const OVER_TLS = ['pipelined-fairly', 'unread-page-300', 'huge-length'];

/** A suite inherits the concurrency of its parent unless set. */
const IN_TURN = { concurrency: 1 };

// Concurrent, since an attack mostly waits.
describe('misbehaving client', { ...needs('Linux', process.platform === 'linux'), concurrency: 2 }, () => {
  describe('does not disturb other clients', IN_TURN, () => attackAll(sqlite, ofOne));
  for (const engine of engines)
    describe(`does not disturb other clients, on ${engine.name}`, IN_TURN, () =>
      attackAll(engine, ofEngines),
    );
  describe('does not disturb other clients, over TLS', IN_TURN, () => {
    const chosen = attacks.filter(({ name }) => OVER_TLS.includes(name));
    assert.equal(chosen.length, OVER_TLS.length);
    attackAll(sqlite, chosen, true);
  });
});

function attackAll(engine: TestEngine, all: readonly Attack[], isTls = false): void {
  const cleanups: (() => Promise<void>)[] = [];
  const lifetime = { after: (work: () => Promise<void>) => void cleanups.unshift(work) };
  let grounds: Grounds;
  before(async () => {
    grounds = await prepareGrounds(lifetime, engine.name, await engine.freshUrl(lifetime));
  });
  after(async () => {
    for (const cleanup of cleanups) await cleanup();
  });
  for (const attack of all) {
    it(`${attack.name}: ${attack.about}`, async (t) => {
      const report = (line: string): void => t.diagnostic(line);
      const options = { grounds, isTls, calmSeconds: 0.3, slack: SLACK, report };
      assert.deepEqual(await abuse(attack, options), []);
    });
  }
}

const WAITS = { count: 1_000, median: 1, p99: 249, longest: 999 };
const GOOD: AbuseFigures = {
  alone: { requests: WAITS, live: WAITS, failures: [], sentBytes: 1 },
  others: { requests: WAITS, live: WAITS, failures: [], sentBytes: 1 },
  report: {
    connected: 10,
    failed: 0,
    sentBytes: 1,
    receivedBytes: 1,
    statuses: { 200: 20 },
    whole: 10,
    closed: 10,
    lastClosedMs: 100,
  },
  memory: { before: 100 * MEBIBYTE, peak: 227 * MEBIBYTE, after: 227 * MEBIBYTE },
  readBytes: MEBIBYTE - 1,
  held: 10,
  closedMs: 999,
  idleMs: 1_999,
  stop: { code: 0, ms: 9_999 },
  isUnchanged: true,
  problems: [],
};
const ALL_BOUNDS: Bounds = {
  ...USUAL_BOUNDS,
  closedMs: 1_000,
  readBytes: MEBIBYTE,
  statuses: [200],
  answersEach: 2,
  isWhole: true,
  idleMs: 2_000,
  isUnchanged: true,
};

const TEN = { min: 10, max: 10 };

describe('the bounds of an attack', () => {
  it('figures just below them → pass', () => {
    assert.deepEqual(abuseFaults(GOOD, ALL_BOUNDS, TEN), []);
  });

  const { others, report, memory } = GOOD;
  const harms: readonly (readonly [harm: Partial<AbuseFigures>, fault: RegExp])[] = [
    [{ others: { ...others, requests: { ...WAITS, count: 99 } } }, /only 99 requests/],
    [{ others: { ...others, requests: { ...WAITS, p99: 250 } } }, /others' p99: 250 ms/],
    [{ others: { ...others, requests: { ...WAITS, longest: 1_000 } } }, /others' longest wait: 1.0 s/],
    [{ others: { ...others, live: { ...WAITS, p99: 250 } } }, /\/live's p99: 250 ms/],
    [{ others: { ...others, live: { ...WAITS, longest: 1_000 } } }, /\/live's longest wait: 1.0 s/],
    [{ others: { ...others, failures: ['503'] } }, /failures: 1/],
    [{ memory: { ...memory, peak: 228 * MEBIBYTE } }, /memory: 128.0 MiB/],
    [{ readBytes: MEBIBYTE }, /read: 1.0 MiB/],
    [{ closedMs: 1_000 }, /all closed: 1.0 s/],
    [{ closedMs: undefined }, /all closed: never/],
    [{ idleMs: 2_000 }, /idle again: 2.0 s/],
    [{ idleMs: undefined }, /idle again: never/],
    [{ stop: { code: 0, ms: 10_000 } }, /the stop: 10.0 s/],
    [{ stop: { code: 1, ms: 1 } }, /exit code 1/],
    [{ report: { ...report, connected: 9 } }, /only 9 of 10 attackers/],
    [{ report: { ...report, statuses: { 200: 19 } } }, /19 responses arrived, not 20/],
    [{ report: { ...report, statuses: { 200: 21 } } }, /21 responses arrived, not 20/],
    [{ report: { ...report, statuses: { 200: 19, 408: 1 } } }, /1 attackers got 408/],
    [{ report: { ...report, whole: 9 } }, /only 9 of 10 responses were complete/],
    [{ isUnchanged: false }, /plants changed/],
    [{ problems: ['it complained'] }, /it complained/],
  ];
  for (const [harm, fault] of harms) {
    it(`figures above them → fail with ${fault.source}`, () => {
      const [only, ...more] = abuseFaults({ ...GOOD, ...harm }, ALL_BOUNDS, TEN);
      assert.match(only ?? '', fault);
      assert.deepEqual(more, []);
    });
  }

  it('an unknown number of attackers was accepted → as many responses as some number of them gets', () => {
    const faultsFor = (count: number) =>
      abuseFaults({ ...GOOD, report: { ...report, statuses: { 200: count } } }, ALL_BOUNDS, {
        min: 8,
        max: 10,
      });
    for (const count of [16, 20]) assert.deepEqual(faultsFor(count), []);
    for (const count of [15, 21])
      assert.deepEqual(faultsFor(count), [`${count} responses arrived, not 16 to 20`]);
  });

  it('busy machine → only bounds on speed are not judged', () => {
    const alone = (p99: number) => ({ ...GOOD.alone, requests: { ...WAITS, p99 } });
    assert.deepEqual(
      [25, 26].map((p99) => isMachineBusy({ ...GOOD, alone: alone(p99) })),
      [false, true],
    );
    const bounds = withoutSpeed(ALL_BOUNDS);
    const judged = harms.filter(
      ([harm]) => abuseFaults({ ...GOOD, ...harm }, bounds, { min: 0, max: 10 }).length > 0,
    );
    const bySpeed = /only|p99|memory|longest|closed|idle|the stop|arrived/;
    assert.deepEqual(
      judged.map(([, fault]) => fault.source),
      harms.map(([, fault]) => fault.source).filter((source) => !bySpeed.test(source)),
    );
    assert.ok(judged.length >= 5);
    const growth = { ...GOOD, memory: { ...memory, peak: 292 * MEBIBYTE } };
    assert.deepEqual(abuseFaults(growth, bounds, TEN), ['memory: 192.0 MiB, bound 192.0 MiB']);
  });

  it('the catalogue has at least 20 attacks with unique names', () => {
    assert.ok(catalogue.length >= 20);
    assert.equal(new Set(catalogue.map(({ name }) => name)).size, catalogue.length);
  });
});
