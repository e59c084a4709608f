import type { Latencies } from '../../support/latencies.ts';
import { inMebibytes, MEBIBYTE } from '../../support/process-resources.ts';
import type { AttackReport, Bounds } from './attack.ts';
import { describeFailures, type OthersFigures } from './other-clients.ts';

/** The measurements of one attack on one target. */
export interface AbuseFigures {
  readonly alone: OthersFigures;
  readonly others: OthersFigures;
  readonly report: AttackReport;
  /** Resident memory before, at its peak and after, in bytes. */
  readonly memory: { readonly before: number; readonly peak: number; readonly after: number };
  /** Bytes that the target read, by the kernel's count, minus those of the other clients. */
  readonly readBytes: number;
  /** Attacking connections open at once on the target, and the time until all were closed. */
  readonly held: number;
  readonly closedMs: number | undefined;
  /** Time after the attack until the CPU use was back to the level before it. */
  readonly idleMs: number | undefined;
  readonly stop: { readonly code: number | null; readonly ms: number };
  readonly isUnchanged: boolean;
  /** Log lines of level error or fatal. */
  readonly problems: readonly string[];
}

export const USUAL_BOUNDS: Bounds = {
  // With fewer requests a p99 means nothing.
  samples: 100,
  p99Ms: 250,
  longestMs: 1_000,
  failures: 1,
  memory: 128 * MEBIBYTE,
  stopMs: 10_000,
};

/** Widens the bounds on times for a machine that is busy with other programs. */
export function slacken(bounds: Bounds, slack: number): Bounds {
  const times = Object.entries(bounds).filter(([name]) => name.endsWith('Ms'));
  return {
    ...bounds,
    samples: bounds.samples / slack,
    ...Object.fromEntries(times.map(([name, ms]) => [name, Number(ms) * slack])),
  };
}

/** An idle machine responds to the other clients sooner, while there is no attack. */
const BUSY_MS = 25;

/** Returns whether other programs slowed the measurement down, by the requests before the attack. */
export function isMachineBusy({ alone }: AbuseFigures): boolean {
  return alone.requests.count === 0 || alone.requests.p99 > BUSY_MS;
}

/**
 * Keeps the bounds that hold at any speed: failures, statuses, the plants. On a busy machine buffers are freed
 * later, so the bound on memory is wider.
 */
export function withoutSpeed(bounds: Bounds): Bounds {
  const { closedMs: _closed, idleMs: _idle, answersEach: _answers, isWhole: _whole, ...others } = bounds;
  const never = Number.POSITIVE_INFINITY;
  const memory = 1.5 * bounds.memory;
  return { ...others, memory, samples: 0, p99Ms: never, longestMs: never, stopMs: never };
}

/** Number of attackers whose connections the service accepts. */
interface Accepted {
  readonly min: number;
  readonly max: number;
}

/** Returns the bounds that the figures break, in words; empty when all hold. */
export function abuseFaults(figures: AbuseFigures, bounds: Bounds, accepted: Accepted): string[] {
  const { others, memory, readBytes, closedMs, idleMs, stop, report } = figures;
  const faults: string[] = [...figures.problems];
  const below = (what: string, value: number | undefined, bound: number | undefined, show = inMs): void => {
    if (bound === undefined || (value !== undefined && value < bound)) return;
    faults.push(`${what}: ${value === undefined ? 'never' : show(value)}, bound ${show(bound)}`);
  };
  if (others.requests.count < bounds.samples)
    faults.push(`only ${others.requests.count} requests of other clients were measured`);
  below("others' p99", others.requests.p99, bounds.p99Ms);
  below("others' longest wait", others.requests.longest, bounds.longestMs);
  below("/live's p99", others.live.p99, bounds.p99Ms);
  below("/live's longest wait", others.live.longest, bounds.longestMs);
  below("others' failures", others.failures.length, bounds.failures, String);
  below('memory', memory.peak - memory.before, bounds.memory, inMebibytes);
  below('read', readBytes, bounds.readBytes, inMebibytes);
  below('all closed', closedMs, bounds.closedMs);
  below('idle again', idleMs, bounds.idleMs);
  below('the stop', stop.ms, bounds.stopMs);
  if (stop.code !== 0) faults.push(`the stop gave exit code ${stop.code}`);
  if (report.connected < accepted.min)
    faults.push(`only ${report.connected} of ${accepted.min} attackers connected`);
  faults.push(...answerFaults(report, bounds, accepted));
  if (bounds.isUnchanged && !figures.isUnchanged) faults.push('the plants changed');
  return faults;
}

function answerFaults({ statuses, whole }: AttackReport, bounds: Bounds, { min, max }: Accepted): string[] {
  const faults: string[] = [];
  const answers = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  const { answersEach = 0 } = bounds;
  const wanted = [...new Set([min, max])].map((attackers) => attackers * answersEach);
  if (answersEach > 0 && (answers < min * answersEach || answers > max * answersEach))
    faults.push(`${answers} responses arrived, not ${wanted.join(' to ')}`);
  for (const [status, count] of Object.entries(statuses))
    if (bounds.statuses !== undefined && !bounds.statuses.includes(Number(status)))
      faults.push(`${count} attackers got ${status}`);
  if (bounds.isWhole && whole < min) faults.push(`only ${whole} of ${min} responses were complete`);
  return faults;
}

/** Formats the figures in a few lines, the same for each target. */
export function describeAbuse(name: string, figures: AbuseFigures): string[] {
  const { alone, others, report, memory, readBytes, held, closedMs, idleMs, stop } = figures;
  const { before, peak, after } = memory;
  const statuses = Object.entries(report.statuses).map(([status, count]) => `${count} × ${status}`);
  const failures = others.failures.length === 0 ? '' : ` (${describeFailures(others.failures)})`;
  return [
    `  ${name}`,
    `    attackers  ${report.connected} connected, ${report.failed} not; sent ${inMebibytes(report.sentBytes)}, of which ${inMebibytes(readBytes)} were read; received ${inMebibytes(report.receivedBytes)}: ${statuses.join(', ') || 'no response'}`,
    `    closed     ${report.closed} seen by them${report.closed === 0 ? '' : `, the last after ${inMs(report.lastClosedMs)}`}; ${held} open at once, all closed after ${closedMs === undefined ? '-' : inMs(closedMs)}`,
    `    memory     ${inMebibytes(before)} before, ${inMebibytes(peak)} peak (+${inMebibytes(peak - before)}), ${inMebibytes(after)} after`,
    `    others     ${describeWaits(others.requests)}, ${others.failures.length} failed${failures}; alone ${describeWaits(alone.requests)}`,
    `    /live      ${describeWaits(others.live)}`,
    `    afterwards idle after ${idleMs === undefined ? '-' : inMs(idleMs)}; stopped with ${stop.code} after ${inMs(stop.ms)}`,
  ];
}

function describeWaits({ count, median, p99, longest }: Latencies): string {
  return `${count}: p50 ${median.toFixed(1)} p99 ${p99.toFixed(1)} max ${longest.toFixed(1)} ms`;
}

function inMs(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
