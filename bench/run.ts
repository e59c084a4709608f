import { appendFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installAlternatives } from './contenders/alternatives.ts';
import { type Options, OptionsInvalid, readOptions } from './options.ts';
import { conditionsOf, describe, describeOthers } from './report/conditions.ts';
import { failuresOf } from './report/figures.ts';
import { renderTable } from './report/table.ts';
import { type Results, targetsTable } from './report/targets.ts';
import type { Bench, Report } from './scenarios/scenario.ts';

const CONNECTIONS = 64;

try {
  await run(readOptions(), stopSignal());
} catch (error: unknown) {
  process.stderr.write(`bench: ${reasonOf(error)}\n`);
  process.exitCode = error instanceof OptionsInvalid ? 2 : 1;
}

function reasonOf(error: unknown): string {
  if (error instanceof SuppressedError) return `${reasonOf(error.suppressed)}\n${reasonOf(error.error)}`;
  if (error instanceof Error && error.name === 'AbortError') return 'stopped';
  return error instanceof OptionsInvalid ? `${error.message}; --help lists the flags` : String(error);
}

function stopSignal(): AbortSignal {
  const stop = new AbortController();
  // Handles every signal: without a handler, a second signal would end this process before its child
  // processes stop.
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => stop.abort());
  return stop.signal;
}

async function run(
  { parts, generator, withAlternatives, growth, json, ...plan }: Options,
  signal: AbortSignal,
): Promise<void> {
  // Checks that the output file is writable, before the benchmark runs for minutes.
  if (json !== undefined) await appendFile(json, '');
  await using resources = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-bench-'));
  resources.defer(() => rm(folder, { recursive: true, force: true }));
  const bench: Bench = {
    ...{ folder, generator, signal, plan, growth },
    connections: CONNECTIONS,
    alternatives: withAlternatives ? await installAlternatives(signal) : [],
  };
  const conditions = await conditionsOf(bench);
  process.stdout.write(describe(conditions));
  const reports: Record<string, Report> = {};
  for (const part of parts) {
    signal.throwIfAborted();
    const report = await part.run(bench);
    for (const table of report.tables) process.stdout.write(`\n${renderTable(table)}`);
    reports[part.name] = report;
  }
  const all = Object.values(reports);
  const results: Results = Object.assign({}, ...all.map((report) => report.results));
  process.stdout.write(`\n${describeOthers(all)}\n\n${renderTable(targetsTable(results))}`);
  if (json !== undefined) await writeFile(json, renderJson(conditions, reports, results));
  reportFailures(all, bench);
}

/**
 * Reports the contenders with failed requests. Throws if our service or a baseline is among them; an
 * alternative may fail.
 */
function reportFailures(reports: readonly Report[], { alternatives }: Bench): void {
  const failed = reports.flatMap(({ contenders }) => contenders).filter(({ runs }) => failuresOf(runs) > 0);
  for (const { name, runs } of failed)
    process.stderr.write(`${name}: ${failuresOf(runs)} requests failed; its figures are not valid\n`);
  const others = new Set(alternatives.map(({ name }) => name));
  if (failed.some(({ name }) => !others.has(name)))
    throw new Error('requests to the service or to a baseline failed');
}

function renderJson(conditions: object, reports: Readonly<Record<string, Report>>, targets: Results): string {
  const parts = Object.fromEntries(Object.entries(reports).map(([name, { json }]) => [name, json]));
  return `${JSON.stringify({ ...conditions, targets, parts }, null, 2)}\n`;
}
