import { createHook } from 'node:async_hooks';
import { nextTick } from 'node:process';
import { setFlagsFromString } from 'node:v8';

/**
 * Keeps one object created by `process.nextTick` reachable, so that V8 keeps the hidden class of such
 * objects. No code reads the array.
 */
const kept: object[] = [];

/**
 * Keeps `process.nextTick` fast. Each call of `process.nextTick` creates an object. If a full garbage
 * collection finds no such object in use, V8 frees their hidden class. All later calls are then about 0.5 µs
 * slower, until the process ends. Each request makes four or five calls. Call `keepNextTickFast` before the
 * first full collection.
 */
export function keepNextTickFast(): void {
  const hook = createHook({
    init(_id, _type, _trigger, created) {
      kept.push(created);
    },
  }).enable();
  nextTick(() => undefined);
  hook.disable();
}

/**
 * Disables an optimization of V8, allocation-site pretenuring ("Memento Mori", Clifford et al., ISMM 2015,
 * pp. 105-117). After a burst of requests, this optimization keeps parts of later requests in memory until a
 * full garbage collection (docs/performance.md). Call this function only after the service has started. Node
 * rejects its code cache once a V8 flag has changed, so an earlier call would slow down the start.
 */
export function disableAllocationSitePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}
