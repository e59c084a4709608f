import type { Comparison, Runs } from '../compare.ts';
import type { Measurement } from '../contenders/contender.ts';
import { decimals, mebibytes, show, type Table, whole } from './table.ts';

interface Figures {
  readonly perSecond: number;
  readonly p50Ms: number | undefined;
  readonly p99Ms: number | undefined;
  readonly p999Ms: number | undefined;
  readonly cpuSecondsPerRequest: number | undefined;
  readonly generatorCpuSecondsPerRequest: number | undefined;
  readonly databaseSecondsPerRequest: number | undefined;
  readonly peakBytes: number | undefined;
  readonly failures: number;
}

/** Share of a core above which a thread counts as saturated. */
const BUSY = 0.9;

/** Returns the medians over the rounds; undefined if the load generator was the bottleneck in most rounds. */
export function figuresOf(runs: readonly Measurement[]): Figures | undefined {
  if (runs.length === 0 || runs.filter(isGeneratorLimit).length > runs.length / 2) return undefined;
  const medianOf = (read: (run: Measurement) => number | undefined): number | undefined =>
    medianOfKnown(runs.map(read));
  return {
    perSecond: median(runs.map(perSecond)),
    p50Ms: medianOf((run) => run.p50Ms),
    p99Ms: medianOf((run) => run.p99Ms),
    p999Ms: medianOf((run) => run.p999Ms),
    cpuSecondsPerRequest: medianOf((run) => perAnswer(run.cpu?.server, run)),
    generatorCpuSecondsPerRequest: medianOf((run) => perAnswer(run.cpu?.generator, run)),
    databaseSecondsPerRequest: medianOf((run) => perAnswer(run.databaseSeconds, run)),
    peakBytes: medianOf((run) => run.peakBytes),
    failures: failuresOf(runs),
  };
}

interface Ratio {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

/**
 * Divides the request rates of two contenders, round by round. Returns the median and range of the ratios;
 * undefined if `figuresOf` returns none for a contender.
 */
export function ratioOf(runs: readonly Measurement[], others: readonly Measurement[]): Ratio | undefined {
  if (figuresOf(runs) === undefined || figuresOf(others) === undefined) return undefined;
  const ratios = ratiosOf(runs, others, perSecond);
  return { median: median(ratios), least: Math.min(...ratios), most: Math.max(...ratios) };
}

/**
 * Returns the rate of the first contender divided by that of the contender `name`: the median over the
 * rounds.
 */
export function ratioTo({ contenders }: Comparison, name: string): number | undefined {
  const other = contenders.find((one) => one.name === name);
  return ratioOf(contenders[0]?.runs ?? [], other?.runs ?? [])?.median;
}

/**
 * Returns the first contender's responses per CPU second, divided by those of the contender `name`: the
 * median over the rounds. Unlike a ratio of rates, it holds even if the load generator was the bottleneck.
 */
export function perCpuRatioTo({ contenders }: Comparison, name: string): number | undefined {
  const other = contenders.find((one) => one.name === name);
  return medianOfKnown(ratiosOf(contenders[0]?.runs ?? [], other?.runs ?? [], perCpuSecond));
}

/** Divides a figure of one contender by that of another, round by round. */
function ratiosOf(
  runs: readonly Measurement[],
  others: readonly Measurement[],
  figureOf: (run: Measurement) => number | undefined,
): readonly number[] {
  return runs.flatMap((run, round) => {
    const other = others[round];
    const [one, divisor] = [figureOf(run), other && figureOf(other)];
    return one === undefined || divisor === undefined ? [] : [one / divisor];
  });
}

export function failuresOf(runs: readonly Measurement[]): number {
  return runs.reduce((sum, run) => sum + run.failures, 0);
}

/**
 * Tabulates the contenders as rows. Each row after the first shows the first contender's rate divided by the
 * rate of the row's contender.
 */
export function comparisonTable({ work, contenders }: Comparison): Table {
  const [first] = contenders;
  const header = [
    work,
    'a second',
    '÷ it',
    'p50 ms',
    'p99 ms',
    'CPU µs',
    'generator',
    'peak MiB',
    'failures',
  ];
  return [
    header,
    ...contenders.map((one) => [`  ${one.name}`, ...cellsOf(one, first === one ? undefined : first)]),
  ];
}

function cellsOf({ runs }: Runs, first: Runs | undefined): readonly string[] {
  const figures = figuresOf(runs);
  if (figures === undefined) return ['the generator was the limit'];
  const ratio = first && ratioOf(first.runs, runs);
  const microseconds = (seconds: number): string => (seconds * 1e6).toFixed(1);
  return [
    whole(figures.perSecond),
    ratio === undefined ? '' : describeRatio(ratio),
    show(figures.p50Ms, decimals(2)),
    show(figures.p99Ms, decimals(2)),
    show(figures.cpuSecondsPerRequest, microseconds),
    show(figures.generatorCpuSecondsPerRequest, microseconds),
    show(figures.peakBytes, mebibytes),
    String(figures.failures),
  ];
}

function describeRatio({ median, least, most }: Ratio): string {
  const digits = decimals(median < 10 ? 2 : 0);
  return `${digits(median)} (${digits(least)}–${digits(most)})`;
}

export function comparisonJson({ work, contenders }: Comparison) {
  const [first] = contenders;
  return {
    work,
    contenders: contenders.map(({ name, runs }) => ({
      name,
      figures: figuresOf(runs) ?? 'the generator was the limit',
      ratio: first && ratioOf(first.runs, runs),
      runs,
    })),
  };
}

function isGeneratorLimit({ cpu, seconds }: Measurement): boolean {
  if (cpu === undefined) return false;
  return cpu.generator / seconds > BUSY * cpu.generatorThreads && cpu.serverMainThread / seconds < BUSY;
}

function perSecond({ answers, seconds }: Measurement): number {
  return answers / seconds;
}

function perCpuSecond({ answers, cpu }: Measurement): number | undefined {
  return cpu && answers / cpu.server;
}

function perAnswer(cpuSeconds: number | undefined, { answers }: Measurement): number | undefined {
  return cpuSeconds === undefined ? undefined : cpuSeconds / answers;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.slice(Math.floor((sorted.length - 1) / 2), Math.floor(sorted.length / 2) + 1);
  return middle.reduce((sum, value) => sum + value, 0) / middle.length;
}

function medianOfKnown(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : median(known);
}
