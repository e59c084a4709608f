import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { describe, test } from 'node:test';
import manifest from '../../package.json' with { type: 'json' };
import { errorCodes } from '../../src/api-errors.ts';
import { logEvents } from '../../src/observability/log-events.ts';

// Import rules, circles, file names in kebab-case, file length and unused exports belong to the tools of `npm run check`.

const ROOT = join(import.meta.dirname, '../..');
const MAX_FILES = 14;

/** The source files, relative to the repository. */
const sources = ['src', 'client/src']
  .flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));

/** The file of the guide "How to add an operation", which the service does not have. */
const EXAMPLE = 'src/http/plants/get-plant.ts';

/** The only two folders that use the same file names: one file for the same part of each engine. */
const ENGINES = ['src/store/postgres', 'src/store/sqlite'];

describe('source files', () => {
  test('no file or folder has a name without meaning, such as utils', () => {
    const empty = /^(?:.*-)?(?:utils?|helpers?|common|shared|misc|managers?|base|index)$/;
    assert.deepEqual(
      sources.filter((path) =>
        path
          .replace(/\.ts$/, '')
          .split('/')
          .some((part) => empty.test(part)),
      ),
      [],
    );
  });

  test(`no folder holds more than ${MAX_FILES} files`, () => {
    const folders = Map.groupBy(sources, dirname);
    const full = [...folders].filter(([, files]) => files.length > MAX_FILES);
    assert.deepEqual(
      full.map(([folder]) => folder),
      [],
    );
    assert.ok(folders.size > 10);
  });

  test('no two files have the same name, except the twins of the engines', () => {
    const twins = [...Map.groupBy(sources, (path) => basename(path)).values()].filter(
      (files) => files.length > 1 && files.map(dirname).sort().join() !== ENGINES.join(),
    );
    assert.deepEqual(twins, []);
  });

  test('ARCHITECTURE.md names each file of http/ and store/', () => {
    const page = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
    const unnamed = sources.filter(
      (path) => /^src\/(?:http|store)\//.test(path) && !page.includes(`\`${basename(path)}\``),
    );
    assert.deepEqual(unnamed, []);
  });

  /** All scripts of the repository, with their paths in it. */
  const scripts = globSync('{src,client,test,bench,build,deploy,examples}/**/*.{ts,js,mjs}', {
    cwd: ROOT,
    exclude: ['**/node_modules/**'],
  });

  for (const page of ['ARCHITECTURE.md', 'CONTRIBUTING.md']) {
    test(`each source file that ${page} names exists`, () => {
      const text = readFileSync(join(ROOT, page), 'utf8');
      const named = [...text.matchAll(/`([^`\s]+\.ts)`/g)].map(([, name = '']) => name);
      const unknown = named.filter((name) => !scripts.some((path) => `/${path}`.endsWith(`/${name}`)));
      assert.deepEqual(
        unknown.filter((name) => name !== EXAMPLE),
        [],
      );
      assert.ok(named.length > 50, `${named.length} names`);
    });
  }

  test('each path in the import rules exists', () => {
    const rules = readFileSync(join(ROOT, '.dependency-cruiser.mjs'), 'utf8');
    const patterns = [...rules.matchAll(/'(\^[^'\n]+)'/g)].flatMap(([, pattern = '']) =>
      alternativesOf(pattern.replaceAll('\\\\', '\\').replaceAll('$1', '[^/]+')),
    );
    const paths = patterns.filter((path) =>
      /^\^(?:src|client|test|bench|build|deploy|examples)\b/.test(path),
    );
    assert.deepEqual(
      paths.filter((pattern) => !scripts.some((script) => new RegExp(pattern).test(script))),
      [],
    );
    assert.ok(paths.length > 60, `${paths.length} paths`);
  });

  test('each log event is logged, and each error code is used', () => {
    const texts = sources
      .filter((path) => path.startsWith('src') && !/\b(?:log-events|api-errors)\.ts$/.test(path))
      .map((path) => readFileSync(join(ROOT, path), 'utf8'));
    const isUnused = (name: string) => !texts.some((text) => text.includes(name));
    assert.deepEqual(
      Object.keys(logEvents).filter((event) => isUnused(`'${event}'`)),
      [],
    );
    assert.deepEqual(errorCodes.map(String).filter(isUnused), []);
  });

  test('each word that the spelling check accepts is in a file', () => {
    const { stdout } = spawnSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' });
    const paths = stdout.trim().split('\n');
    // A source archive has no repository.
    if (paths.length < 100) return;
    const text = paths
      .filter((path) => path !== 'cspell-words.txt' && existsSync(join(ROOT, path)))
      .map((path) => readFileSync(join(ROOT, path), 'latin1').toLowerCase())
      .join('\n');
    const words = readFileSync(join(ROOT, 'cspell-words.txt'), 'latin1').trim().split('\n');
    assert.deepEqual(
      words.filter((word) => !text.includes(word.toLowerCase())),
      [],
    );
  });

  test('no docstring begins with a question word', () => {
    const files = globSync('{src,client,test,bench,build}/**/*.ts', {
      cwd: ROOT,
      exclude: ['**/node_modules/**'],
    });
    const question = /\/\*\*\s+(?:\* )?(?:What|Whether|When|Where|Which|Why|How|Who)/;
    assert.deepEqual(
      files.filter((file) => question.test(readFileSync(join(ROOT, file), 'utf8'))),
      [],
    );
  });

  test('no generated file is in git', () => {
    const args = ['ls-files', '--cached', '--ignored', '--exclude-standard'];
    const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
    // A source archive has no repository.
    if (status === 0) assert.equal(stdout, '');
  });
});

describe('tiers of the tests', () => {
  /** The files that an npm script names by patterns. */
  const filesOf = (script: string): readonly string[] => {
    const patterns = [...script.matchAll(/'(test\/[^']+)'/g)].map(([, pattern = '']) => pattern);
    return globSync(patterns, { cwd: ROOT });
  };
  const fast = new Set(filesOf(manifest.scripts['test:fast']));
  const covered = filesOf(manifest.scripts['test:coverage']);
  const all = [...covered, ...filesOf(manifest.scripts['test:all'])];

  test('test:all runs every test file once; test:fast those outside test/system', () => {
    const exclude = ['**/node_modules/**', '.git/**'];
    assert.deepEqual(all.toSorted(), globSync('**/*.test.ts', { cwd: ROOT, exclude }).sort());
    const slow = all.filter((file) => file.startsWith(join('test', 'system')));
    assert.deepEqual(all.filter((file) => !fast.has(file)).sort(), slow.sort());
    assert.ok(fast.size > 40 && slow.length > 20, `${fast.size} and ${slow.length} files`);
  });

  test('npm test runs test:fast, and CI runs test:all and test:supported-nodes', () => {
    assert.match(manifest.scripts.test, /npm run test:fast$/);
    assert.match(manifest.scripts['test:all'], /npm run test:coverage &&/);
    const run = readFileSync(join(ROOT, '.ci/run'), 'utf8');
    assert.match(run, /^npm ci && npm run test:all && npm run test:supported-nodes$/m);
  });
});

/** Returns a pattern for each combination of the alternatives in a pattern. */
function alternativesOf(pattern: string): readonly string[] {
  const [group, inner = '', isOptional] = /\((?!\?!)(?:\?:)?([^()]*)\)(\?)?/.exec(pattern) ?? [];
  if (group === undefined) return pattern.split('|');
  return [...inner.split('|'), ...(isOptional === undefined ? [] : [''])].flatMap((part) =>
    alternativesOf(pattern.replace(group, () => part)),
  );
}
