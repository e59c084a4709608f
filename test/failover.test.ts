import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failOver } from './failover.ts';

test('when the primary dies and its synchronous standby takes over, no acknowledged write is lost', async (t) => {
  const { balance, recovery } = await failOver(t, { acknowledgements: 30, settings: ['fsync = off'] });
  assert.ok(balance.created > 30 && balance.deleted > 5, JSON.stringify(balance));
  assert.ok(recovery < 5_000, `the service took ${recovery} ms to find the new primary`);
});
