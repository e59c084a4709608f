import { arch, cpus, platform } from 'node:os';
import type { Comparison } from './compare.ts';
import type { Measurement } from './measure.ts';

export interface Conditions {
  readonly generator: string;
  readonly connections: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly fsyncMs: number;
}

export interface Figures {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuSecondsPerRequest: number | undefined;
  readonly generatorCpuSecondsPerRequest: number | undefined;
  readonly peakBytes: number | undefined;
  readonly failures: number;
  /** Whether the generator, not the server, set the pace in most rounds. */
  readonly generatorWasLimit: boolean;
}

/** The share of a core above which a thread is taken to be busy all the time. */
const BUSY = 0.9;

const MEBIBYTE = 1024 * 1024;

/** The medians over the rounds. */
export function figuresOf(runs: readonly Measurement[]): Figures {
  const medianOf = (read: (run: Measurement) => number): number => median(runs.map(read));
  return {
    perSecond: medianOf(perSecond),
    p50Ms: medianOf((run) => run.p50Ms),
    p99Ms: medianOf((run) => run.p99Ms),
    cpuSecondsPerRequest: medianOfKnown(runs.map((run) => perAnswer(run.cpu?.server, run))),
    generatorCpuSecondsPerRequest: medianOfKnown(runs.map((run) => perAnswer(run.cpu?.generator, run))),
    peakBytes: medianOfKnown(runs.map((run) => run.peakBytes)),
    failures: runs.reduce((sum, run) => sum + run.failures, 0),
    generatorWasLimit: runs.filter(isGeneratorLimit).length > runs.length / 2,
  };
}

/** What the runs of one subject reach of those of another in the same rounds: the median of the ratios, and their range. */
export function ratioOf(ours: readonly Measurement[], others: readonly Measurement[]) {
  const ratios = ours.flatMap((run, round) => {
    const other = others[round];
    return other === undefined ? [] : [perSecond(run) / perSecond(other)];
  });
  return { median: median(ratios), least: Math.min(...ratios), most: Math.max(...ratios) };
}

/** The failures of all runs. */
export function failuresOf(comparisons: readonly Comparison[]): number {
  return runsOf(comparisons).reduce((sum, run) => sum + run.failures, 0);
}

function runsOf(comparisons: readonly Comparison[]): readonly Measurement[] {
  return comparisons.flatMap(({ subjects }) => subjects.flatMap(({ runs }) => runs));
}

export function renderTable(comparisons: readonly Comparison[], conditions: Conditions): string {
  const header = ['', 'requests/s', 'p50 ms', 'p99 ms', 'CPU µs/req', 'generator', 'peak MiB', 'failures'];
  const rows = comparisons.flatMap((comparison) => [[], ...renderComparison(comparison)]);
  return `${describe(conditions, comparisons)}\n\n${align([header, ...rows])}\n${noteOnLimits(comparisons)}`;
}

export function renderJson(comparisons: readonly Comparison[], conditions: Conditions): string {
  const workloads = comparisons.map(({ workload, subjects }) => ({
    workload,
    subjects: subjects.map(({ name, runs }) => ({
      name,
      ...figuresOf(runs),
      ratio: ratioOf(subjects[0]?.runs ?? [], runs),
      runs,
    })),
  }));
  return `${JSON.stringify({ ...conditions, machine: machine(), workloads }, null, 2)}\n`;
}

function machine() {
  return { node: process.version, system: `${platform()} ${arch()}`, cores: cpus().length };
}

function describe(
  { generator, connections, rounds, seconds, fsyncMs }: Conditions,
  comparisons: readonly Comparison[],
): string {
  const { node, system, cores } = machine();
  const others = medianOfKnown(runsOf(comparisons).map(({ cpu, seconds }) => cpu && cpu.others / seconds));
  return [
    `${generator}, ${connections} connections; median of ${rounds} × ${seconds} s, the subjects taking turns`,
    `Node ${node}, ${system}, ${cores} cores; one fsync takes ${fsyncMs.toFixed(2)} ms`,
    `Other processes kept ${show(others, (count) => count.toFixed(2))} cores busy meanwhile`,
    'CPU: of the server process and of the generator, microseconds a request',
  ].join('\n');
}

function renderComparison({ workload, subjects: [ours, ...others] }: Comparison): string[][] {
  if (ours === undefined) return [];
  return [
    [workload],
    ...[ours, ...others].map(({ name, runs }) => [`  ${name}`, ...renderFigures(figuresOf(runs))]),
    ...others.map(({ name, runs }) => {
      const { median, least, most } = ratioOf(ours.runs, runs);
      return [`  ÷ ${name}`, `${median.toFixed(2)} (${least.toFixed(2)}–${most.toFixed(2)})`];
    }),
  ];
}

function renderFigures(figures: Figures): string[] {
  const microseconds = (seconds: number) => (seconds * 1e6).toFixed(1);
  return [
    Math.round(figures.perSecond).toLocaleString('en') + (figures.generatorWasLimit ? ' *' : ''),
    figures.p50Ms.toFixed(2),
    figures.p99Ms.toFixed(2),
    show(figures.cpuSecondsPerRequest, microseconds),
    show(figures.generatorCpuSecondsPerRequest, microseconds),
    show(figures.peakBytes, (bytes) => (bytes / MEBIBYTE).toFixed(0)),
    String(figures.failures),
  ];
}

function noteOnLimits(comparisons: readonly Comparison[]): string {
  const limited = comparisons.some(({ subjects }) =>
    subjects.some(({ runs }) => figuresOf(runs).generatorWasLimit),
  );
  return limited
    ? '\n* The generator was the limit: it kept a core busy and the server did not. The server can do more.\n'
    : '';
}

function align(rows: readonly (readonly string[])[]): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  const lines = rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  );
  return lines.join('\n');
}

function isGeneratorLimit({ cpu, seconds }: Measurement): boolean {
  return cpu !== undefined && cpu.generator / seconds > BUSY && cpu.serverMainThread / seconds < BUSY;
}

function perSecond({ answers, seconds }: Measurement): number {
  return answers / seconds;
}

function perAnswer(cpuSeconds: number | undefined, { answers }: Measurement): number | undefined {
  return cpuSeconds === undefined ? undefined : cpuSeconds / answers;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.slice(Math.floor((sorted.length - 1) / 2), Math.floor(sorted.length / 2) + 1);
  return middle.reduce((sum, value) => sum + value, 0) / middle.length;
}

function medianOfKnown(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : median(known);
}

function show(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? '–' : format(value);
}
