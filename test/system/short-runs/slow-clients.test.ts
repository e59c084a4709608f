import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { measureSlowClients, type SlowFigures, slowFaults } from '../../long/slow-clients.ts';
import { describeLatencies } from '../../support/latencies.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';

const CLIENTS = 150;

/**
 * The seconds of slow clients: a service that they block serves no other client in this time. `npm run
 * test:slow-clients` checks the promised bound, on an idle machine.
 */
const SECONDS = 5;

describe('slow clients', () => {
  it('do not delay other clients, and leave no resources behind', async (t) => {
    const figures = await measureSlowClients({
      clients: CLIENTS,
      seconds: SECONDS,
      plants: 10_000,
      report: (line) => t.diagnostic(line),
    });
    assert.deepEqual(slowFaults(figures, CLIENTS, 1_000 * SECONDS), []);
    t.diagnostic(`others meanwhile: ${describeLatencies(figures.others)}`);
  });

  it('the limits of the verdict detect each kind of harm', () => {
    const held = { files: 40, memory: 100 * MEBIBYTE };
    const quick = { count: 100, median: 1, p99: 20, longest: 30 };
    const good: SlowFigures = {
      connected: CLIENTS,
      cut: 10,
      alone: quick,
      others: quick,
      before: held,
      after: held,
      problems: [],
    };
    assert.deepEqual(slowFaults(good, CLIENTS), []);
    for (const [harm, fault] of [
      [{ connected: 100 }, /only 100 of 150/],
      [{ others: { ...quick, p99: 120 } }, /waited too long/],
      [{ after: { ...held, files: 43 } }, /3 sockets are still open/],
      [{ after: { ...held, memory: 200 * MEBIBYTE } }, /was not released/],
      [{ problems: ['another client got 503'] }, /got 503/],
    ] as const) {
      const [only, ...more] = slowFaults({ ...good, ...harm }, CLIENTS);
      assert.match(only ?? '', fault);
      assert.deepEqual(more, []);
    }
  });
});
