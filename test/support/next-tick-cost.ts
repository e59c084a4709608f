// Prints the microseconds of one `process.nextTick` after full garbage collections. Run with --expose-gc.
import { setImmediate } from 'node:timers/promises';
import { keepNextTickFast } from '../../src/cli/v8-tuning.ts';

const ROUNDS = 3_000;
const CALLS = 100;
/**
 * Number of full garbage collections. One is not enough: V8 keeps an unused hidden class for several
 * collections.
 */
const COLLECTIONS = 8;

const [mode] = process.argv.slice(2);
if (mode === 'kept') keepNextTickFast();
// Makes V8 compile the hot code before the collections, as in a running service.
await fastestCall();
for (let collection = 0; collection < COLLECTIONS; collection += 1) {
  await setImmediate();
  global.gc?.();
}
process.stdout.write(String(await fastestCall()));

async function fastestCall(): Promise<number> {
  let fastest = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round += 1) {
    const start = performance.now();
    for (let call = 0; call < CALLS; call += 1) process.nextTick(() => undefined);
    await setImmediate();
    fastest = Math.min(fastest, ((performance.now() - start) * 1_000) / CALLS);
  }
  return fastest;
}
