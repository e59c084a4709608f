import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Connection } from '../support/clients/keep-alive-client.ts';
import { createRandom } from '../support/data/seeded-random.ts';
import { canRun, NEEDS } from '../support/needs.ts';
import { MEBIBYTE } from '../support/process-resources.ts';
import { newInstallation } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';
import { cpuSeconds } from '../support/servers/process-tree.ts';
import { startService } from '../support/service.ts';
import { namesIn } from './disk/judge-store.ts';
import { type RecordedWrite, recordWrites } from './disk/recorded-writers.ts';

const WRITERS = 8;

interface Round {
  readonly acknowledged: number;
  /** Acknowledged writes that the restored store lacks. */
  readonly missing: number;
  /** Seconds from the response to the oldest missing write until the kill; 0 if none is missing. */
  readonly lag: number;
  /** The size of the write-ahead log at the kill, in bytes. */
  readonly log: number;
  /** CPU time in milliseconds for a thousand acknowledged writes. */
  readonly serviceCpu: number;
  readonly litestreamCpu: number;
  readonly faults: readonly string[];
}

/**
 * Loads a service for some seconds, with Litestream on its store or without, and kills both as if the machine was lost.
 * With Litestream, restores the replica and compares it with the acknowledged writes.
 */
async function loadAndKill(seconds: number, replicated: boolean, random: () => number): Promise<Round> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token();
  const service = await installation.serve({ env: { NODE_ENV: 'production' } });
  const replica = `file://${join(installation.folder, 'replica')}`;
  const litestream = replicated ? startLitestream(installation.file, replica) : undefined;
  ending.defer(async () => void (litestream && (await killAndWait(litestream))));

  const writing = recordWrites({
    url: service.url,
    token,
    writers: WRITERS,
    writes: Number.MAX_SAFE_INTEGER,
    random,
  });
  const before = (await cpuSeconds(service.pid)) ?? 0;
  await Promise.race([setTimeout(seconds * 1_000), writing]);
  const serviceCpu = (await cpuSeconds(service.pid)) ?? 0;
  const litestreamCpu = litestream?.pid === undefined ? 0 : ((await cpuSeconds(litestream.pid)) ?? 0);
  const log = (await stat(`${installation.file}-wal`)).size;
  const killedAt = performance.now();
  service.kill('SIGKILL');
  if (litestream !== undefined) await killAndWait(litestream);
  const { writes, surprises } = await writing;
  const acknowledged = writes.filter(({ requestId }) => requestId !== undefined).length;
  const perThousand = (cpu: number): number => (1_000 * cpu) / (acknowledged / 1_000);
  const measured = {
    acknowledged,
    log,
    serviceCpu: perThousand(serviceCpu - before),
    litestreamCpu: perThousand(litestreamCpu),
  };
  if (!replicated) return { ...measured, missing: 0, lag: 0, faults: surprises };

  const restored = join(installation.folder, 'restored.db');
  await promisify(execFile)('litestream', ['restore', '-o', restored, replica]);
  const check = await installation.run(['check'], { env: { DATABASE_URL: `sqlite:${restored}` } });
  const after = (work: () => unknown): void => ending.defer(async () => void (await work()));
  const again = await startService({ after }, `sqlite:${restored}`);
  const connection = new Connection(again.url, token);
  const list = await connection.list();
  connection.close();
  const { missing, faults } = compare(namesIn(list?.body ?? ''), writes);
  const oldest = Math.min(killedAt, ...missing.map(({ answeredAt }) => answeredAt));
  return {
    ...measured,
    missing: missing.length,
    lag: (killedAt - oldest) / 1_000,
    faults: [...surprises, ...faults, ...(check.code === 0 ? [] : [check.stdout + check.stderr])],
  };
}

function startLitestream(file: string, replica: string): ChildProcess {
  const child = spawn('litestream', ['replicate', file, replica], { stdio: ['ignore', 'ignore', 'pipe'] });
  child.stderr?.resume();
  return child;
}

async function killAndWait(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

/** Returns the acknowledged writes that a restored store lacks, and states that no moment of the load had. */
function compare(
  found: ReadonlyMap<bigint, string>,
  writes: readonly RecordedWrite[],
): { missing: readonly RecordedWrite[]; faults: readonly string[] } {
  const missing: RecordedWrite[] = [];
  const faults: string[] = [];
  let newest = Number.NEGATIVE_INFINITY;
  for (const [id, history] of Map.groupBy(writes, (write) => write.id)) {
    const name = found.get(id) ?? null;
    const last = history.findLastIndex((write) => write.name === name);
    if (last < 0 && name !== null) faults.push(`plant ${id} was never written: ${name}`);
    missing.push(...history.slice(last + 1).filter(({ requestId }) => requestId !== undefined));
    // A plant is in the store since this write; an absent one may never have been.
    if (name !== null) newest = Math.max(newest, history[last]?.sentAt ?? newest);
  }
  const skipped = missing.filter(({ answeredAt }) => answeredAt < newest);
  if (skipped.length > 0)
    faults.push(`${skipped.length} missing writes are older than others that are present`);
  return { missing, faults };
}

function median(numbers: readonly number[]): number {
  return [...numbers].sort((one, other) => one - other)[Math.floor(numbers.length / 2)] ?? 0;
}

async function main(): Promise<void> {
  const values = readFlags(
    'Replicates a store with Litestream under load, kills both, restores the replica, and compares it with the acknowledged writes.',
    {
      rounds: { type: 'string', default: '10', about: 'number of kills and restores' },
      seconds: { type: 'string', default: '10', about: 'duration of the load before each kill' },
      seed: seedFlag,
    },
  );
  if (!canRun('litestream', 'version')) {
    const how = 'go install github.com/benbjohnson/litestream/cmd/litestream@v0.5.18';
    process.stdout.write(`not run: ${NEEDS}litestream on the PATH (${how})\n`);
    process.exitCode = 1;
    return;
  }
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const seed = Number(values.seed ?? newSeed());
  write(`seed ${seed}`);
  const random = createRandom(seed);
  const [replicated, alone]: [Round[], Round[]] = [[], []];
  for (let round = 1; round <= Number(values.rounds); round += 1) {
    // In turns, so that both meet the same machine.
    alone.push(await loadAndKill(Number(values.seconds), false, random));
    const one = await loadAndKill(Number(values.seconds), true, random);
    replicated.push(one);
    const verdict = one.faults.length === 0 ? 'sound' : one.faults.join('; ');
    write(
      `round ${round}: ${one.acknowledged} writes acknowledged, ${one.missing} missing after the restore, ` +
        `${one.lag.toFixed(2)} s of them; write-ahead log ${(one.log / MEBIBYTE).toFixed(1)} MiB: ${verdict}`,
    );
  }
  const highest = (rounds: readonly Round[], of: (round: Round) => number): number =>
    Math.max(...rounds.map(of));
  const cost = (rounds: readonly Round[]): string =>
    median(rounds.map(({ serviceCpu }) => serviceCpu)).toFixed(0);
  const unsound = replicated.filter(({ faults }) => faults.length > 0).length;
  write(
    `${replicated.length - unsound} of ${replicated.length} restored stores sound; up to ` +
      `${highest(replicated, ({ lag }) => lag).toFixed(2)} s of writes missing; write-ahead log up to ` +
      `${(highest(replicated, ({ log }) => log) / MEBIBYTE).toFixed(1)} MiB, without Litestream ` +
      `${(highest(alone, ({ log }) => log) / MEBIBYTE).toFixed(1)} MiB; CPU of the service for 1,000 writes ` +
      `${cost(replicated)} ms, without ${cost(alone)} ms; of Litestream ` +
      `${median(replicated.map(({ litestreamCpu }) => litestreamCpu)).toFixed(0)} ms`,
  );
  if (unsound > 0) process.exitCode = 1;
}

if (import.meta.main) await main();
