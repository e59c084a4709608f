import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { engines } from './engines.ts';
import { readFlags } from './script-flags.ts';

const names = engines.map(({ name }) => name);

/**
 * A reporter for `node --test`. For every file that runs its tests on each engine, it prints how many passed per
 * engine. The title of a test, or of a test around it, names the engine. The run fails when a file has different
 * counts per engine, a count of 0, or a skipped test.
 */
// biome-ignore lint/style/noDefaultExport: Node takes a reporter in no other way.
export default async function* countByEngine(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const files = new Set<string>();
  const engineOf = new Map<string, string | undefined>();
  const passed: { readonly file: string; readonly engine: string }[] = [];
  const faults: string[] = [];
  for await (const { type, data } of events) {
    if (type !== 'test:start' && type !== 'test:pass' && type !== 'test:fail') continue;
    // Not `file`: that is the file of the test's source, which can be a shared suite.
    const { entryFile: file, name, testId, parentId } = data;
    if (file === undefined || !(files.has(file) || isOfEveryEngine(file))) continue;
    files.add(file);
    const engine = engineOf.get(`${file} ${parentId}`) ?? engineIn(name);
    engineOf.set(`${file} ${testId}`, engine);
    if (type === 'test:start') continue;
    if (data.skip !== undefined || data.todo !== undefined) faults.push(`skipped: ${name}`);
    else if (type === 'test:pass' && data.details.type !== 'suite' && engine !== undefined)
      passed.push({ file, engine });
  }

  const rows = [...files].sort().map((file) => {
    const ofFile = passed.filter((one) => one.file === file);
    return { title: basename(file), counts: countsOf(ofFile) };
  });
  for (const { title, counts } of rows) {
    if (new Set(counts).size > 1) faults.push(`different counts per engine: ${title}`);
    if (counts.includes(0)) faults.push(`no test on an engine: ${title}`);
  }
  yield `\n${line('passed on', names)}`;
  for (const { title, counts } of rows) yield line(title, counts);
  yield line('all', countsOf(passed));
  for (const fault of faults) yield `${fault}\n`;
  if (faults.length > 0) process.exitCode = 1;
}

function isOfEveryEngine(file: string): boolean {
  return /^ *for \(const engine of engines\)/m.test(readFileSync(file, 'utf8'));
}

function engineIn(title: string): string | undefined {
  return names.find((name) => new RegExp(`\\b${name}\\b`).test(title));
}

function countsOf(passed: readonly { readonly engine: string }[]): readonly number[] {
  return names.map((name) => passed.filter(({ engine }) => engine === name).length);
}

function line(title: string, cells: readonly (string | number)[]): string {
  return `${title.padEnd(30)}${cells.map((cell) => String(cell).padStart(10)).join('')}\n`;
}

if (import.meta.main) {
  readFlags('Runs the tests that run on every engine, and prints how many passed on each.', {});
  const files = globSync(join(import.meta.dirname, '../**/*.test.ts'))
    .filter(isOfEveryEngine)
    .sort();
  const { status } = spawnSync('npm', ['run', 'test:files', '--', ...files], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
}
