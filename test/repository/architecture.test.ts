import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SOURCES = fileURLToPath(new URL('../../src/', import.meta.url));
const MAX_LINES = 350;

interface Import {
  /** The file of ours, such as `store/open-engine.ts`, or the package or built-in. */
  readonly target: string;
  readonly isOurs: boolean;
  /** Gone once the types are stripped. `import { type A }` is not: the import itself stays, for its effects. */
  readonly isOfTypes: boolean;
}

interface Source {
  /** Relative to `src`, such as `store/open-engine.ts`. */
  readonly path: string;
  readonly text: string;
  readonly imports: readonly Import[];
}

const IMPORT = /^(?:import|export)\s+(type\s+)?(?:[^'";]*?\bfrom\s+)?'([^']+)'/gm;
const DYNAMIC_IMPORT = /\bimport\(\s*'([^']+)'\s*\)/g;
const WORKER = /new URL\(\s*[^;]*?'(\.[^']+\.ts)'/g;

function readImports(path: string, text: string): readonly Import[] {
  const found = [
    ...[...text.matchAll(IMPORT)].map(([, type, from]) => ({ from, isOfTypes: type !== undefined })),
    ...[...text.matchAll(DYNAMIC_IMPORT)].map(([, from]) => ({ from, isOfTypes: false })),
    ...[...text.matchAll(WORKER)].map(([, from]) => ({ from, isOfTypes: false })),
  ];
  return found.map(({ from = '', isOfTypes }) => {
    const isOurs = from.startsWith('.');
    return { target: isOurs ? join(dirname(path), from) : from, isOurs, isOfTypes };
  });
}

function readSources(): readonly Source[] {
  return readdirSync(SOURCES, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => {
      const path = relative(SOURCES, join(entry.parentPath, entry.name));
      const text = readFileSync(join(SOURCES, path), 'utf8');
      return { path, text, imports: readImports(path, text) };
    });
}

const sources = readSources();

function roomOf(path: string): string {
  return path.includes('/') ? dirname(path) : path;
}

/** The imports that break a rule, as `from → to`. */
function importsThat(breaks: (from: string, to: Import) => boolean): readonly string[] {
  return sources.flatMap(({ path, imports }) =>
    imports.filter((one) => breaks(path, one)).map(({ target }) => `${path} → ${target}`),
  );
}

/** A circle of files that import each other, if there is one. Types make none. */
function findCycle(): readonly string[] | undefined {
  const edges = new Map(
    sources.map(({ path, imports }) => [
      path,
      imports.filter(({ isOurs, isOfTypes }) => isOurs && !isOfTypes).map(({ target }) => target),
    ]),
  );
  const done = new Set<string>();

  function search(path: string, trail: readonly string[]): readonly string[] | undefined {
    if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path];
    if (done.has(path)) return undefined;
    for (const target of edges.get(path) ?? []) {
      const cycle = search(target, [...trail, path]);
      if (cycle !== undefined) return cycle;
    }
    done.add(path);
    return undefined;
  }

  for (const path of edges.keys()) {
    const cycle = search(path, []);
    if (cycle !== undefined) return cycle;
  }
  return undefined;
}

interface Words {
  /** Relative to the repository. */
  readonly path: string;
  readonly text: string;
  readonly words: ReadonlySet<string>;
}

function readWords(folder: string): readonly Words[] {
  const root = join(SOURCES, '..');
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((path) => /\.[jt]s$/.test(path) && !path.includes('node_modules'))
    .map((path) => {
      const text = readFileSync(join(root, folder, path), 'utf8');
      return { path: join(folder, path), text, words: new Set(text.match(/\w+/g)) };
    });
}

function findIdleExports(files: readonly Words[]): readonly string[] {
  return files.flatMap((file) =>
    exportsOf(file)
      .filter((name) => !files.some((other) => other !== file && takes(other, name, file)))
      .map((name) => `${file.path}: ${name}`),
  );
}

/** What a file exports for others of the repository: not what is published, nor what Node itself asks for. */
function exportsOf({ path, text }: Words): readonly string[] {
  if (/^src\/client\/|\.test\.ts$|^test\/support\/global-setup\.ts$/.test(path)) return [];
  const exported = text.matchAll(/^export (?:async )?(?:const|function\*?|class|interface|type) (\w+)/gm);
  return [...exported].map(([, name = '']) => name);
}

/** Whether a file imports another, in whatever way, and has a name of it. */
function takes({ text, words }: Words, name: string, { path }: Words): boolean {
  return words.has(name) && text.includes(`/${basename(path)}'`);
}

describe('who imports whom', () => {
  test('every import is read: those of ours are files that exist', () => {
    const paths = new Set(sources.map(({ path }) => path));
    assert.deepEqual(
      importsThat((_from, { isOurs, target }) => isOurs && !paths.has(target)),
      [],
    );
    for (const { path, text, imports } of sources) {
      const written = text.match(/^import\b|\bimport\(/gm) ?? [];
      assert.ok(imports.length >= written.length, path);
    }
    const open = sources.find(({ path }) => path === 'store/open-engine.ts');
    assert.deepEqual(
      open?.imports.filter(({ target }) => target.startsWith('store/sqlite/')).map(({ target }) => target),
      ['store/sqlite/engine.ts', 'store/sqlite/bulk.ts', 'store/sqlite/backup.ts', 'store/sqlite/migrate.ts'],
    );
  });

  test('api-errors, plant and token import nothing of ours', () => {
    const alone = ['api-errors.ts', 'plant.ts', 'token.ts'];
    assert.deepEqual(
      importsThat((from, { isOurs }) => alone.includes(from) && isOurs),
      [],
    );
    for (const path of alone) assert.ok(sources.some((source) => source.path === path));
  });

  test('the ports know of ours only the types of a token', () => {
    assert.deepEqual(
      importsThat(
        (from, { target, isOurs, isOfTypes }) =>
          ['store/store.ts', 'store/bulk-store.ts'].includes(from) &&
          isOurs &&
          !(target === 'token.ts' && isOfTypes),
      ),
      [],
    );
  });

  test('engines know neither HTTP nor the command line', () => {
    assert.deepEqual(
      importsThat((from, { target }) => from.startsWith('store/') && /^(?:http|cli|client)\//.test(target)),
      [],
    );
  });

  test('HTTP knows no engine, only the port', () => {
    assert.deepEqual(
      importsThat(
        (from, { target }) =>
          from.startsWith('http/') && /^(?:store\/(?!store\.ts$)|cli\/|client\/)/.test(target),
      ),
      [],
    );
  });

  test('the client takes types alone', () => {
    assert.deepEqual(
      importsThat(
        (from, { target, isOurs, isOfTypes }) =>
          from.startsWith('client/') && isOurs && !isOfTypes && !target.startsWith('client/'),
      ),
      [],
    );
  });

  test('only the server and the commands wire rooms together', () => {
    const isWiring = (path: string): boolean => path === 'server.ts' || path.startsWith('cli/');
    const isPort = (path: string): boolean => ['store/store.ts', 'store/bulk-store.ts'].includes(path);
    const topOf = (path: string): string => path.split('/')[0] ?? '';
    assert.deepEqual(
      importsThat(
        (from, { target, isOurs, isOfTypes }) =>
          isOurs &&
          !isWiring(from) &&
          !(from.startsWith('client/') && isOfTypes) &&
          !isPort(target) &&
          !(from.startsWith('http/') && target.startsWith('observability/')) &&
          (isWiring(target) || (target.includes('/') && topOf(target) !== topOf(from))),
      ),
      [],
    );
  });

  test('a technology stays in its room', () => {
    const rooms: readonly (readonly [RegExp, RegExp])[] = [
      [/^node:sqlite$/, /^store\/sqlite\//],
      [/^fastify$/, /^(?:http\/|server\.ts$|observability\/tracing\.ts$)/],
      [/^@opentelemetry\//, /^observability\/tracing\.ts$/],
      [/^node:http$/, /^(?:http|client)\//],
      [/^commander$/, /^cli\//],
      [/^cli-progress$/, /^cli\/progress\.ts$/],
      [/^csv-/, /^formats\/csv\.ts$/],
      [/^pino/, /^(?:observability\/log\.ts|server\.ts|cli\/commands\/serve-command\.ts)$/],
    ];
    for (const [technology, room] of rooms) {
      assert.deepEqual(
        importsThat((from, { target }) => technology.test(target) && !room.test(from)),
        [],
      );
    }
  });

  test('no files import each other in a circle', () => {
    assert.equal(findCycle()?.join(' → '), undefined);
  });
});

describe('files', () => {
  test('their names are in kebab-case', () => {
    const others = sources.filter(
      ({ path }) => !/^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)*[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/.test(path),
    );
    assert.deepEqual(
      others.map(({ path }) => path),
      [],
    );
  });

  test('none is named for being of use to others, nor gathers exports', () => {
    const empty = /^(?:.*-)?(?:utils?|helpers?|common|shared|misc|managers?|base|index)$/;
    const named = sources.filter(({ path }) => empty.test(basename(path, '.ts')) || empty.test(roomOf(path)));
    assert.deepEqual(
      named.map(({ path }) => path),
      [],
    );
    // The client alone is published, and may gather what belongs to it.
    const barrels = sources.filter(
      ({ path, text }) =>
        !path.startsWith('client/') && /^export\s+(?:type\s+)?(?:\*|\{[^}]*\}\s*from)/m.test(text),
    );
    assert.deepEqual(
      barrels.map(({ path }) => path),
      [],
    );
  });

  test(`none has more than ${MAX_LINES} lines`, () => {
    const long = sources.filter(({ text }) => text.trimEnd().split('\n').length > MAX_LINES);
    assert.deepEqual(
      long.map(({ path }) => path),
      [],
    );
  });

  test('none that is generated is kept in the repository', () => {
    const args = ['ls-files', '--cached', '--ignored', '--exclude-standard'];
    const { status, stdout } = spawnSync('git', args, { cwd: join(SOURCES, '..'), encoding: 'utf8' });
    // Sources that came without a repository keep nothing.
    if (status === 0) assert.equal(stdout, '');
  });

  test('none exports a default', () => {
    assert.deepEqual(
      sources.filter(({ text }) => /^export default\b/m.test(text)).map(({ path }) => path),
      [],
    );
  });

  test('none exports what no other takes', () => {
    const files = ['src', 'bin', 'test', 'bench', 'build', 'deploy', 'examples'].flatMap(readWords);
    assert.deepEqual(findIdleExports(files), []);
    const planted = {
      path: 'planted.ts',
      text: 'export async function idle() {}\n',
      words: new Set<string>(),
    };
    assert.deepEqual(findIdleExports([...files, planted]), ['planted.ts: idle']);
  });

  test('the environment is read by the commands alone', () => {
    const readers = sources.filter(({ text }) =>
      /\bprocess\s*\??\.\s*env\b|\benv\b[^;]*from 'node:process'/.test(text),
    );
    assert.deepEqual(
      readers.map(({ path }) => path).filter((path) => !path.startsWith('cli/')),
      [],
    );
    assert.ok(readers.length > 0);
  });
});
