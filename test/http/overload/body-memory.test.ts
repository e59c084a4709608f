import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BODY_MEMORY_BYTES, createBodyMemory } from '../../../src/http/overload/body-memory.ts';
import { OWNER_SHARE } from '../../../src/http/overload/concurrency-limit.ts';
import { usedHeap } from '../../support/process-resources.ts';

const OWNERS = 100_000;
/** Less than the smallest entry of a map for each owner takes. */
const BYTES_OF_OWNER = 32;

test('owner above three quarters → error of its share; all above the limit → error of the limit', () => {
  const count = createBodyMemory(1_024);
  count('alice', BODY_MEMORY_BYTES * OWNER_SHARE);
  assert.throws(() => count('alice', 1), { code: 50301, limit: 'owner' });
  assert.throws(() => count('bob', BODY_MEMORY_BYTES / 2), { code: 50301, limit: undefined });
});

test('many owners, one after the other → no memory is kept for them', () => {
  const count = createBodyMemory(1_024);
  const before = usedHeap();
  for (let number = 0; number < OWNERS; number += 1) {
    count(`owner ${number}`, 10);
    count(`owner ${number}`, -10);
  }
  assert.ok(usedHeap() - before < OWNERS * BYTES_OF_OWNER);
  count('alice', 1);
});
