// Prints the CPU milliseconds of each of `costlyBodies` as a JSON array. Repeats a body until its time is in the limit, the
// first argument, since compilation, garbage collection and a busy machine add time.
import { JsonInvalid, parseJson } from '../../src/exact-json.ts';
import { NewPlant, newPlantFields, renderPlant } from '../../src/plant.ts';
import { compileCheck } from '../../src/validation.ts';
import { costlyBodies } from './data/costly-bodies.ts';

const WARM_UPS = 5;
const MAX_ROUNDS = 500;

const limit = Number(process.argv[2]);
const check = compileCheck(NewPlant);
for (let round = 0; round < WARM_UPS; round += 1) for (const { body } of costlyBodies) take(body);
process.stdout.write(JSON.stringify(costlyBodies.map(({ body }) => leastMs(body))));

/** Does the work of a creation before its store access. */
function take(body: Buffer): void {
  try {
    const checked = check(parseJson(body, newPlantFields));
    if ('value' in checked) renderPlant(checked.value);
  } catch (error: unknown) {
    if (!(error instanceof JsonInvalid)) throw error;
  }
}

function leastMs(body: Buffer): number {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < MAX_ROUNDS && least > limit; round += 1) {
    const before = process.cpuUsage();
    take(body);
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1_000);
  }
  return least;
}
