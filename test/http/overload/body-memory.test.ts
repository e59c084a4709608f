import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBodyMemory } from '../../../src/http/overload/body-memory.ts';
import { usedHeap } from '../../support/process-resources.ts';

const OWNERS = 100_000;
/** Less than the smallest entry of a map for each owner takes. */
const BYTES_OF_OWNER = 32;

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
