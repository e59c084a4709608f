import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { engines } from './engines.ts';
import { readFlags } from './script-flags.ts';

const names = engines.map(({ name }) => name);

/**
 * Counts the passed tests of each engine, for every test file that runs its tests on each engine. The title
 * of a test, or of a suite around it, names the engine.
 */
export class EngineCounts {
  readonly #files = new Set<string>();
  readonly #engineOf = new Map<string, string | undefined>();
  readonly #passed: { readonly file: string; readonly engine: string }[] = [];

  add({ type, data }: TestEvent): void {
    if (type !== 'test:start' && type !== 'test:pass' && type !== 'test:fail') return;
    // Counts by `entryFile`, the test file that was started, which the types of Node 24 lack. Several test files may
    // import the tests in `file`, so `file` does not identify the test file.
    const { name, testId, parentId } = data;
    const file = 'entryFile' in data ? data.entryFile : undefined;
    if (typeof file !== 'string' || !(this.#files.has(file) || isOfEveryEngine(file))) return;
    this.#files.add(file);
    const engine = this.#engineOf.get(`${file} ${parentId}`) ?? engineIn(name);
    this.#engineOf.set(`${file} ${testId}`, engine);
    if (type !== 'test:pass' || data.skip !== undefined || data.todo !== undefined) return;
    if (data.details.type !== 'suite' && engine !== undefined) this.#passed.push({ file, engine });
  }

  /** Lines of the summary: one per file, and one in total. */
  get lines(): readonly string[] {
    if (this.#files.size === 0) return [];
    const rows = this.#rows().map(({ title, counts }) => line(title, counts));
    return [line('passed on', names), ...rows, line('all', countsOf(this.#passed))];
  }

  /** Messages for files that passed different numbers of tests on the engines, or no test on an engine. */
  get faults(): readonly string[] {
    return this.#rows().flatMap(({ title, counts }) => [
      ...(new Set(counts).size > 1 ? [`different counts per engine: ${title}`] : []),
      ...(counts.includes(0) ? [`no test on an engine: ${title}`] : []),
    ]);
  }

  #rows(): { readonly title: string; readonly counts: readonly number[] }[] {
    return [...this.#files].sort().map((file) => {
      const ofFile = this.#passed.filter((one) => one.file === file);
      return { title: basename(file), counts: countsOf(ofFile) };
    });
  }
}

/** True for a file that runs its tests on each engine. */
export function isOfEveryEngine(file: string): boolean {
  return /^ *for \(const engine of engines\)/m.test(readFileSync(file, 'utf8'));
}

function engineIn(title: string): string | undefined {
  return names.find((name) => new RegExp(`\\b${name}\\b`).test(title));
}

function countsOf(passed: readonly { readonly engine: string }[]): readonly number[] {
  return names.map((name) => passed.filter(({ engine }) => engine === name).length);
}

function line(title: string, cells: readonly (string | number)[]): string {
  return `${title.padEnd(30)}${cells.map((cell) => String(cell).padStart(10)).join('')}`;
}

if (import.meta.main) {
  readFlags('Runs the tests that run on every engine, and prints how many passed on each.', {});
  const files = globSync(join(import.meta.dirname, '../**/*.test.ts'))
    .filter(isOfEveryEngine)
    .sort();
  const { status } = spawnSync('npm', ['run', 'test:files', '--', ...files], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
}
