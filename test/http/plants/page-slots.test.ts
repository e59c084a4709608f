import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createPageSlots } from '../../../src/http/plants/page-slots.ts';

describe('page slots', () => {
  it('admit two pages per event-loop iteration, in the order of their arrival', async () => {
    const waitForPageSlot = createPageSlots();
    const admitted: number[] = [];
    for (let page = 0; page < 5; page += 1) void waitForPageSlot().then(() => admitted.push(page));
    const counts: number[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      await setImmediate();
      counts.push(admitted.length);
    }
    assert.deepEqual(counts, [2, 4, 5]);
    assert.deepEqual(admitted, [0, 1, 2, 3, 4]);
  });
});
