import { copyFile, mkdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { createRandom } from '../../support/data/seeded-random.ts';
import type { Command } from '../../support/faults/disk-limits.ts';
import { endOf, type Installation, newInstallation, type Service } from '../../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../../support/script-flags.ts';
import { judgeStore } from './judge-store.ts';
import { recordWrites } from './recorded-writers.ts';

const WRITERS = 4;
const TRACE = 'trace';

/** About the number of calls of the writing thread. */
const CALLS = { pwrite64: 400, fsync: 120, ftruncate: 3 };

/** An error that the system returns instead of executing a call. */
export interface DiskError {
  readonly call: keyof typeof CALLS;
  readonly error: 'EIO' | 'ENOSPC';
  /** The number of the call in its thread. */
  readonly position: number;
  /** True if all later calls fail too. */
  readonly lasts: boolean;
  /** True if the store is made in this start, false if it was made before. */
  readonly isNew: boolean;
}

interface DiskErrorResult {
  /** True if the service reached the call that fails. */
  readonly struck: boolean;
  /** Acknowledged writes. */
  readonly acknowledged: number;
  readonly ending: 'did not start' | 'exited' | 'went on';
  readonly faults: readonly string[];
}

/** Runs a service under an error of the disk and a load, and judges the store that it leaves. */
export async function runWithDiskError(diskError: DiskError, random: () => number): Promise<DiskErrorResult> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = diskError.isNew ? undefined : await installation.token();
  const faults: string[] = [];
  const service = await start(installation, diskError, token, faults);
  if (service === undefined) {
    faults.push(...(await judge(installation, { writes: [], token: '' })));
    return { struck: await hasStruck(installation), acknowledged: 0, ending: 'did not start', faults };
  }
  const { writes, surprises } = await recordWrites({ ...service, writers: WRITERS, writes: 300, random });
  faults.push(...surprises);
  const ended = await service.service.stop();
  const isFatal = service.service.log.some(({ level }) => level === 60);
  // A service that the error did not end must stop in order.
  if (ended.signal !== null || ended.code !== (isFatal ? 1 : 0))
    faults.push(
      `exit ${ended.code ?? ended.signal}, ${isFatal ? 'with' : 'without'} a fatal line: ${ended.stderr}`,
    );
  faults.push(...(await judge(installation, { writes, token: service.token })));
  return {
    struck: await hasStruck(installation),
    acknowledged: writes.filter(({ requestId }) => requestId !== undefined).length,
    ending: isFatal ? 'exited' : 'went on',
    faults,
  };
}

interface Started {
  readonly service: Service;
  readonly url: string;
  readonly token: string;
}

/** Undefined when the service did not start, which it must say in a line, or when it made no token. */
async function start(
  installation: Installation,
  diskError: DiskError,
  known: string | undefined,
  faults: string[],
): Promise<Started | undefined> {
  const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], {
    env: { NODE_DISABLE_COMPILE_CACHE: '1', ...(known === undefined ? {} : { NODE_ENV: 'production' }) },
    wrap: (command) => failing(diskError, installation, command),
  });
  const serving = await program.logged(({ msg }) => msg === 'serving').catch(() => undefined);
  const token =
    known ??
    (serving &&
      (await program.wrote(() => /plt_\w+/.exec(program.output.stdout)?.[0]).catch(() => undefined)));
  if (serving !== undefined && token !== undefined) {
    const url = String(serving.url);
    const stop = (): ReturnType<Service['stop']> => {
      program.kill('SIGTERM');
      return endOf(program);
    };
    return { service: { ...program, url, adminUrl: String(serving.adminUrl), stop }, url, token };
  }
  program.kill('SIGTERM');
  const { code, stderr, stdout } = await endOf(program);
  const said = stderr + stdout;
  if (code !== 1 || !/plants\.db|token/.test(said) || /^ +at /m.test(said))
    faults.push(`it did not start, with exit code ${code} and ${said}`);
  return undefined;
}

/** -D keeps the pid of the program; the error strikes only files of the store. */
function failing(
  { call, error, position, lasts }: DiskError,
  { folder, file }: Installation,
  command: Command,
): Command {
  const paths = ['', '-wal', '-journal'].flatMap((suffix) => ['-P', file + suffix]);
  const fault = `inject=${call}:error=${error}:when=${position}${lasts ? '+' : ''}`;
  const options = [
    '-D',
    '-f',
    '-qq',
    '-o',
    join(folder, TRACE),
    ...paths,
    '-e',
    `trace=${call}`,
    '-e',
    fault,
  ];
  return ['strace', ...options, ...command];
}

async function hasStruck({ folder }: Installation): Promise<boolean> {
  return (await readFile(join(folder, TRACE), 'latin1')).includes('(INJECTED)');
}

async function judge(
  { file, folder }: Installation,
  { writes, token }: Pick<Parameters<typeof judgeStore>[2], 'writes' | 'token'>,
): Promise<readonly string[]> {
  const copy = join(folder, 'copy');
  await mkdir(copy);
  for (const suffix of ['', '-wal', '-journal'])
    await copyFile(file + suffix, join(copy, basename(file) + suffix)).catch(() => undefined);
  const isAcknowledged = ({ requestId }: { requestId: string | undefined }): boolean =>
    requestId !== undefined;
  return judgeStore(file, join(copy, basename(file)), { writes, token, isAcknowledged });
}

/** Chooses the call, the position, the error, its duration, and whether the store is new. */
function chooseError(random: () => number): DiskError {
  const choice = random();
  const call = choice < 0.6 ? 'pwrite64' : choice < 0.95 ? 'fsync' : 'ftruncate';
  // Squared, since the first calls differ most.
  const position = 1 + Math.floor(random() ** 2 * CALLS[call]);
  const error = random() < 0.5 ? 'EIO' : 'ENOSPC';
  return { call, error, position, lasts: random() < 0.5, isNew: random() < 0.4 };
}

async function main(): Promise<void> {
  const values = readFlags(
    'Makes the writes, syncs and truncates of the service fail, and checks that nothing acknowledged is lost.',
    {
      rounds: { type: 'string', default: '300', about: 'number of errors, chosen by the seed' },
      seed: seedFlag,
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const seed = Number(values.seed ?? newSeed());
  write(`seed ${seed}`);
  const random = createRandom(seed);
  const endings = { 'did not start': 0, exited: 0, 'went on': 0 };
  let [struck, acknowledged, unsound, rounds] = [0, 0, 0, 0];
  while (rounds < Number(values.rounds)) {
    const diskError = chooseError(random);
    const result = await runWithDiskError(diskError, random);
    rounds += 1;
    if (result.struck) struck += 1;
    endings[result.ending] += 1;
    acknowledged += result.acknowledged;
    if (result.faults.length === 0) continue;
    unsound += 1;
    write(`${JSON.stringify(diskError)}, ${result.ending}: ${result.faults.slice(0, 3).join('; ')}`);
  }
  write(
    `${rounds} errors, ${struck} of which struck: the service did not start ${endings['did not start']} times, exited ${endings.exited} times ` +
      `and went on ${endings['went on']} times; ${acknowledged} writes acknowledged, ${unsound} stores not as acknowledged`,
  );
  if (unsound > 0) process.exitCode = 1;
}

if (import.meta.main) await main();
