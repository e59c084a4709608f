import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failOver } from '../../long/failover.ts';

test('when the primary dies and its synchronous standby takes over, no acknowledged write is lost', async (t) => {
  const { balance, recovery } = await failOver(t, {
    death: 'crash',
    acknowledgements: 30,
    settings: ['fsync = off'],
  });
  assert.ok(balance.created > 30 && balance.deleted > 5, JSON.stringify(balance));
  assert.ok(recovery < 15_000, `the service took ${recovery} ms to find the new primary`);
});

test('when the primary falls silent, every instance follows once its timeouts are over', async (t) => {
  const [statementMs, acquireMs, graceMs] = [1_000, 1_000, 500];
  const { balance, outage } = await failOver(t, {
    death: 'silence',
    acknowledgements: 30,
    settings: ['fsync = off'],
    environment: {
      DATABASE_STATEMENT_TIMEOUT: String(statementMs),
      DATABASE_ACQUIRE_TIMEOUT: String(acquireMs),
    },
  });
  assert.ok(balance.created > 30 && balance.deleted > 5, JSON.stringify(balance));
  // A connection that was just being made is given up first: half of the time after it began, since there are two hosts.
  assert.ok(outage >= acquireMs / 4, `nobody could know after ${outage} ms`);
  // What was under way, what waited for it, and three times as much again for a busy machine.
  assert.ok(outage < 4 * (statementMs + graceMs + acquireMs), `the instances took ${outage} ms to follow`);
});
