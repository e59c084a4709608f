import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { createRandom } from '../../support/data/seeded-random.ts';
import { newInstallation } from '../../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../../support/script-flags.ts';
import { type DiskEvents, readTrace, traced } from './disk-events.ts';
import { imageAt, isInCheckpoint, writeImage } from './disk-image.ts';
import { judgeStore } from './judge-store.ts';
import { recordWrites } from './recorded-writers.ts';

const WRITERS = 8;

/** Activity of the service at the moment of each cut, in turns. */
const KINDS = [
  'making',
  'checkpoints',
  'rest',
  'checkpoints',
  'rest',
  'checkpoints',
  'rest',
  'checkpoints',
  'rest',
] as const;

interface PowerCutOptions {
  readonly cuts: number;
  /** Acknowledged writes of the recording. */
  readonly writes: number;
  readonly seed: number;
  /** Ignores the syncs of files, which must break the store. */
  readonly blind: boolean;
  readonly report: (line: string) => void;
}

interface PowerCutSummary {
  readonly cuts: number;
  readonly inCheckpoints: number;
  readonly inTheMaking: number;
  /** Cuts after which the store was not as acknowledged. */
  readonly unsound: number;
  readonly acknowledged: number;
}

/**
 * Records every change that a service makes to its files: the making of a store, a load and a clean stop. Then cuts
 * the power at any moment: keeps what a finished sync covers and any subset of the later changes, and judges the store.
 */
export async function cutPower(options: PowerCutOptions): Promise<PowerCutSummary> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const random = createRandom(options.seed);
  const trace = join(installation.folder, 'trace');
  const service = await installation.serve({
    env: { NODE_DISABLE_COMPILE_CACHE: '1' },
    wrap: (command) => traced(trace, command),
  });
  const token = await service.wrote(() => /plt_\w+/.exec(service.output.stdout)?.[0]);
  const { writes, surprises } = await recordWrites({
    url: service.url,
    token,
    writers: WRITERS,
    writes: options.writes,
    random,
  });
  if (surprises.length > 0) throw new Error(surprises.join('\n'));
  const { code } = await service.stop();
  if (code !== 0) throw new Error(`the service stopped with ${code}`);

  const events = await readTrace(trace, installation.file);
  const name = basename(installation.file);
  const moments = sortMoments(events, name);
  options.report(
    `${writes.length} writes acknowledged, ${events.moments.length} moments to cut, ` +
      `${moments.checkpoints.length} of them in checkpoints, ${moments.making.length} in the making of the store`,
  );
  const summary = { cuts: 0, inCheckpoints: 0, inTheMaking: 0, unsound: 0, acknowledged: writes.length };
  for (const cut of Array(options.cuts).keys()) {
    const kind = KINDS[cut % KINDS.length] ?? 'rest';
    const at = moments[kind][Math.floor(random() * moments[kind].length)] ?? 0;
    const image = imageAt(events, { at, blind: options.blind, random });
    const folders = ['served', 'checked'].map((folder) => join(installation.folder, folder));
    const [served = '', untouched = ''] = await Promise.all(
      folders.map((folder) => writeImage(folder, image, name)),
    );
    const faults = await judgeStore(served, untouched, {
      writes,
      token,
      isAcknowledged: ({ requestId = '' }) =>
        (events.responses.get(requestId) ?? Number.POSITIVE_INFINITY) < at,
    });
    for (const folder of folders) await rm(folder, { recursive: true });
    summary.cuts += 1;
    if (kind === 'checkpoints') summary.inCheckpoints += 1;
    if (kind === 'making') summary.inTheMaking += 1;
    if (faults.length > 0) {
      summary.unsound += 1;
      options.report(
        `cut ${cut + 1} at line ${at} (${kind}), which kept ${image.loss} of ${image.uncertain} calls: ` +
          faults.slice(0, 3).join('; '),
      );
    }
  }
  return summary;
}

/** Sorts the moments by what the service was doing. */
function sortMoments(events: DiskEvents, name: string): Record<(typeof KINDS)[number], number[]> {
  const firstResponse = Math.min(...events.responses.values());
  const sorted: Record<(typeof KINDS)[number], number[]> = {
    making: [],
    checkpoints: [],
    rest: [],
  };
  for (const at of events.moments) {
    if (at < firstResponse) sorted.making.push(at);
    else if (isInCheckpoint(events, name, at)) sorted.checkpoints.push(at);
    else sorted.rest.push(at);
  }
  return sorted;
}

async function main(): Promise<void> {
  const values = readFlags(
    'Records what the service does to its files, cuts the power at any moment, and checks that nothing acknowledged is lost.',
    {
      cuts: { type: 'string', default: '500', about: 'number of power cuts' },
      writes: { type: 'string', default: '6000', about: 'writes to record' },
      seed: seedFlag,
      blind: {
        type: 'string',
        default: 'no',
        takes: 'yes|no',
        about: 'ignores the syncs of files, after which the store must break',
      },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const seed = Number(values.seed ?? newSeed());
  write(`seed ${seed}`);
  const summary = await cutPower({
    cuts: Number(values.cuts),
    writes: Number(values.writes),
    seed,
    blind: values.blind === 'yes',
    report: write,
  });
  write(
    `${summary.cuts} power cuts, ${summary.inCheckpoints} in checkpoints and ${summary.inTheMaking} in the making of ` +
      `the store: ${summary.cuts - summary.unsound} sound with every acknowledged write, ${summary.unsound} not`,
  );
  if (summary.unsound > 0) process.exitCode = 1;
}

if (import.meta.main) await main();
