import { createHook } from 'node:async_hooks';
import { nextTick } from 'node:process';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';

/** Bytes of the young generation above which it no longer grows. V8 of Node 24 lets it grow to 128 MiB. */
const YOUNG_GENERATION_BYTES = 16 * 1024 * 1024;
const CHECK_INTERVAL_MS = 100;

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

/**
 * Limits V8's young generation to 16 MiB, or 32 MiB if it doubles twice between two checks. Otherwise a burst of requests
 * grows it to 128 MiB, which V8 of Node 24 does not return; and the larger it is, the more buffers outside the heap wait for
 * its next collection. `--max-semi-space-size` works only on Node's command line. Call this function after the start, like
 * `disableAllocationSitePretenuring`. Its timer does not keep the process running.
 */
export function limitYoungGeneration(): void {
  let isLimited = false;
  setInterval(() => {
    const young = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
    const isLarge = (young?.space_size ?? 0) >= YOUNG_GENERATION_BYTES;
    if (isLarge === isLimited) return;
    isLimited = isLarge;
    // 2 is V8's default. Restores it if V8 has shrunk the young generation.
    setFlagsFromString(`--semi-space-growth-factor=${isLarge ? 1 : 2}`);
  }, CHECK_INTERVAL_MS).unref();
}
