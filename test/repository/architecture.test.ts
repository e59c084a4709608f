import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { describe, test } from 'node:test';

// Import rules, circles, file names in kebab-case, file length and unused exports belong to the tools of `npm run check`.

const ROOT = join(import.meta.dirname, '../..');
const MAX_FILES = 14;

/** The source files, relative to the repository. */
const sources = ['src', 'client/src']
  .flatMap((folder) => readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));

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

  test('no generated file is in git', () => {
    const args = ['ls-files', '--cached', '--ignored', '--exclude-standard'];
    const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
    // A source archive has no repository.
    if (status === 0) assert.equal(stdout, '');
  });
});
