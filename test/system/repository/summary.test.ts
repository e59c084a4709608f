import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freshFolder } from '../../support/engines.ts';

const REPORTER = fileURLToPath(new URL('../../support/summary.ts', import.meta.url));

/** Runs a test file with this body for every engine. Returns the output of the reporter. */
async function countedOf(body: string) {
  const file = join(await freshFolder(), 'planted.test.mjs');
  const loop = `for (const engine of engines) {\n${body}\n}`;
  await writeFile(
    file,
    `import { describe, test } from 'node:test';\nconst engines = ['sqlite', 'postgres'];\n${loop}\n`,
  );
  // Otherwise Node treats the run as a part of this one.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = ['--test', `--test-reporter=${REPORTER}`, '--test-reporter-destination=stdout', file];
  const { status, stdout } = spawnSync(process.execPath, args, { env, encoding: 'utf8', timeout: 60_000 });
  return {
    status,
    lines: stdout
      .trim()
      .split('\n')
      .map((line) => line.replaceAll(/ +/g, ' ')),
  };
}

const HEAD = 'passed on sqlite postgres';
const NONE = '0 tests not run';
const SAME = `
  describe(\`a store on \${engine}\`, () => { test('creates', () => {}); describe('more', () => test('lists', () => {})); });
  test(\`a table on \${engine}\`, (t) => t.test('that has a row about postgres', () => {}));`;

test('a test counts for the engine in its title or in the title of a test around it', async () => {
  assert.deepEqual(await countedOf(SAME), {
    status: 0,
    lines: [HEAD, 'planted.test.mjs 4 4', 'all 4 4', NONE],
  });
});

test('a test that needs a missing program is listed, counted, and fails no run', async () => {
  const body = `${SAME}\ntest(\`one more on \${engine}\`, { skip: 'needs a program' }, () => { throw new Error(); });`;
  assert.deepEqual(await countedOf(body), {
    status: 0,
    lines: [
      HEAD,
      'planted.test.mjs 4 4',
      'all 4 4',
      'not run: one more on sqlite: needs a program',
      'not run: one more on postgres: needs a program',
      '2 tests not run',
    ],
  });
});

for (const { title, body, lines } of [
  {
    title: 'one more on one engine',
    body: `${SAME}\nif (engine === 'postgres') test(\`one more on \${engine}\`, () => {});`,
    lines: ['planted.test.mjs 4 5', 'all 4 5', NONE, 'different counts per engine: planted.test.mjs'],
  },
  {
    title: 'one that is skipped on every engine',
    body: `${SAME}\ntest.todo(\`one more on \${engine}\`, () => { throw new Error(); });`,
    lines: [
      'planted.test.mjs 4 4',
      'all 4 4',
      NONE,
      'skipped: one more on sqlite',
      'skipped: one more on postgres',
    ],
  },
  {
    title: 'one that fails on every engine',
    body: `${SAME}\ntest(\`one more on \${engine}\`, () => { throw new Error(); });`,
    lines: ['planted.test.mjs 4 4', 'all 4 4', NONE],
  },
  {
    title: 'a file that names no engine',
    body: "test('one', () => {});",
    lines: ['planted.test.mjs 0 0', 'all 0 0', NONE, 'no test on an engine: planted.test.mjs'],
  },
]) {
  test(`a run fails for ${title}`, async () => {
    assert.deepEqual(await countedOf(body), { status: 1, lines: [HEAD, ...lines] });
  });
}
