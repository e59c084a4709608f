import { relative } from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { describeCoverage } from './coverage.ts';
import { EngineCounts } from './engine-counts.ts';
import { NEEDS } from './needs.ts';

/** Number of the slowest test files to print. */
const SLOWEST = 5;

/**
 * A reporter for `node --test`. It prints the slowest files, the coverage of each folder (if measured) and
 * the number of passed tests per engine. It also prints the tests that were not run, with the reason. The run
 * fails if a test is skipped for a reason that is not from `needs.ts`. It also fails if a file passes more
 * tests on one engine than on the other.
 */
// biome-ignore lint/style/noDefaultExport: Node takes a reporter in no other way.
export default async function* summarize(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const counts = new EngineCounts();
  const files: { readonly file: string; readonly ms: number }[] = [];
  const notRun: string[] = [];
  const faults: string[] = [];
  for await (const event of events) {
    counts.add(event);
    const { type, data } = event;
    if (type === 'test:coverage') yield lines(['', ...describeCoverage(data)]);
    if (type === 'test:summary' && data.file !== undefined)
      files.push({ file: relative(process.cwd(), data.file), ms: data.duration_ms });
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { name, skip, todo } = data;
    if (typeof skip === 'string' && skip.startsWith(NEEDS)) notRun.push(`${name}: ${skip}`);
    else if (skip !== undefined || todo !== undefined) faults.push(`skipped: ${name}`);
  }
  if (files.length > SLOWEST) {
    const slowest = files.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST);
    yield lines(['', ...slowest.map(({ file, ms }) => `${(ms / 1_000).toFixed(1).padStart(6)} s  ${file}`)]);
  }
  yield lines(['', ...counts.lines, ...notRun.map((one) => `not run: ${one}`)]);
  yield `${notRun.length} tests not run\n`;
  yield lines([...faults, ...counts.faults]);
  if (faults.length + counts.faults.length > 0) process.exitCode = 1;
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join('');
}
