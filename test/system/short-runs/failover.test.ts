import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failOver } from '../../long/failover.ts';
import { PATIENCE_MS } from '../../support/patience.ts';

test('primary crashes, synchronous standby is promoted → no acknowledged write is lost', async (t) => {
  const { balance, recovery } = await failOver(t, {
    death: 'crash',
    acknowledgements: 30,
    settings: ['fsync = off'],
  });
  assert.ok(balance.created > 30 && balance.deleted > 5, JSON.stringify(balance));
  assert.ok(recovery < PATIENCE_MS, `the service took ${recovery} ms to find the new primary`);
});

test('primary stops responding → every instance switches after its timeouts', async (t) => {
  const [statementMs, acquireMs] = [1_000, 1_000];
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
  // A connection attempt gives up first: each of the two hosts gets half of the timeout.
  assert.ok(outage >= acquireMs / 4, `switched before any timeout, after ${outage} ms`);
  assert.ok(outage < PATIENCE_MS, `the instances took ${outage} ms to follow`);
});
