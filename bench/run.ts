import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Comparison, compare } from './compare.ts';
import { medianFsyncMs } from './fsync.ts';
import { type Options, OptionsInvalid, readOptions, usage } from './options.ts';
import { failuresOf, renderJson, renderTable } from './report.ts';
import { bareNode } from './subjects/bare-node.ts';
import { plantStore } from './subjects/plant-store.ts';
import { workloads } from './workloads.ts';

const CONNECTIONS = 64;

/** Ours first: its ratio to each of the others is reported. */
const subjects = [plantStore, bareNode];

try {
  const options = readOptions(process.argv.slice(2));
  if (options === undefined) process.stdout.write(usage);
  else await bench(options, stopSignal());
} catch (error: unknown) {
  process.stderr.write(`bench: ${describe(error)}\n`);
  process.exitCode = 1;
}

function describe(error: unknown): string {
  if (error instanceof SuppressedError) return `${describe(error.suppressed)}\n${describe(error.error)}`;
  return error instanceof OptionsInvalid ? `${error.message}\n\n${usage}` : String(error);
}

function stopSignal(): AbortSignal {
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => stop.abort());
  return stop.signal;
}

async function bench({ only, json, ...options }: Options, signal: AbortSignal): Promise<void> {
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-bench-'));
  resources.defer(() => rm(folder, { recursive: true, force: true }));
  const fsyncMs = medianFsyncMs(join(folder, 'fsync'));
  const running = await startAll(folder, resources);
  const comparisons: Comparison[] = [];
  for (const workload of workloads.filter(({ part }) => only.includes(part))) {
    process.stderr.write(`${workload.name} …\n`);
    comparisons.push(await compare(running, workload, { ...options, connections: CONNECTIONS, signal }));
  }
  const conditions = { ...options, generator: options.generator.name, connections: CONNECTIONS, fsyncMs };
  process.stdout.write(`\n${renderTable(comparisons, conditions)}`);
  if (json !== undefined) await writeFile(json, renderJson(comparisons, conditions));
  const failures = failuresOf(comparisons);
  if (failures > 0) throw new Error(`${failures} requests failed: these figures mean nothing`);
}

async function startAll(folder: string, resources: AsyncDisposableStack) {
  const running = [];
  for (const [index, { name, start }] of subjects.entries()) {
    const own = join(folder, String(index));
    await mkdir(own);
    const subject = await start(own);
    resources.defer(() => subject.close());
    running.push({ name, ...subject });
  }
  return running;
}
