import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { glob, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parts } from '../../bench/scenarios/all-scenarios.ts';
import { listCommands } from '../../build/fact-tables.ts';
import { cellsOf } from '../../build/markdown-table.ts';
import manifest from '../../package.json' with { type: 'json' };
import { errorCodes } from '../../src/api-errors.ts';
import { csv } from '../../src/formats/csv.ts';
import { logEvents } from '../../src/observability/log-events.ts';
import { newPlantFields, plantFields } from '../../src/plant.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

const documents = await readAll('**/*.md');
const commands = await listCommands();

async function readAll(pattern: string): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for await (const file of glob(pattern, { cwd: ROOT, exclude: ['**/node_modules', '.git', 'dist'] })) {
    texts.set(file, await readFile(join(ROOT, file), 'utf8'));
  }
  assert.ok(texts.size > 0, `there are files ${pattern}`);
  return texts;
}

// A merge of changelogs can keep both versions of an entry, or a part of one.
for (const file of ['CHANGELOG.md', 'client/CHANGELOG.md'])
  test(`${file}: each list item ends as a sentence, and no sentence is there twice`, () => {
    const items = documentOf(file)
      .split(/\n(?=- |\n|#)/)
      .filter((text) => text.startsWith('- '));
    assert.ok(items.length > 5, `${items.length} items`);
    for (const item of items) assert.match(item.trimEnd(), /[.:;]$/);
    const sentences = items
      .flatMap((item) => item.replaceAll(/\s+/g, ' ').split(/(?<=[.:;]) /))
      .filter((sentence) => sentence.length > 40);
    assert.deepEqual(
      sentences.filter((one, index) => sentences.indexOf(one) !== index),
      [],
    );
  });

function documentOf(file: string): string {
  const text = documents.get(file);
  assert.ok(text !== undefined, `there is ${file}`);
  return text;
}

/** Returns the rows of all tables, also inside lists, whose first column has the heading. Cells are unparsed. */
function table(file: string, heading: string): (readonly string[])[] {
  const paragraphs = documentOf(file).replaceAll(/^ +/gm, '').trimEnd().split('\n\n');
  const tables = paragraphs
    .filter((text) => text.startsWith('|'))
    .map((text) => text.split('\n').map(cellsOf));
  const found = tables.filter(([head]) => head?.[0] === heading);
  assert.ok(found.length > 0, `${file} has a table of ${heading}`);
  return found.flatMap((rows) => rows.slice(2));
}

/** Returns the texts between backticks in a cell. */
function codes(cell: string | undefined): string[] {
  return [...(cell ?? '').matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);
}

/** Returns the code of a document: its fenced blocks and the texts between backticks. */
function codeOf(text: string): string[] {
  const fenced = [...text.matchAll(/^ *```.*\n([\s\S]*?)^ *```$/gm)].map(([, code = '']) => code);
  return [...fenced, ...codes(text.replace(/^ *```.*\n[\s\S]*?^ *```$/gm, ''))];
}

/** Returns the anchors of the headings, as GitHub creates them. */
function anchorsOf(text: string): string[] {
  const headings = text.replace(/^ *```.*\n[\s\S]*?^ *```$/gm, '').matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\- _]/gu, '')
      .replaceAll(' ', '-'),
  );
}

function matchesIn(texts: ReadonlyMap<string, string>, pattern: RegExp): string[][] {
  return [...texts].flatMap(([file, text]) => [...text.matchAll(pattern)].map((match) => [file, ...match]));
}

test('every flag named in a document exists', () => {
  const known = new Set(commands.flatMap(({ options }) => options.map(({ long }) => long)));
  const tables = ['docs/configuration.md', 'docs/errors.md', 'docs/operations.md', 'SECURITY.md'];
  for (const file of tables) {
    for (const code of codeOf(documentOf(file)).filter(
      (one) => /^--[a-z-]+$/.test(one) && one !== '--help',
    )) {
      assert.ok(known.has(code), `${code}, which ${file} names`);
    }
  }
});

test('docs/errors.md has a remedy for exactly the error codes', () => {
  const documented = [...documentOf('docs/errors.md').matchAll(/^- \*\*(\d{5})\.\*\*/gm)].map(
    ([, code]) => code,
  );
  assert.deepEqual(documented.sort(), errorCodes.map(String));
});

test('docs/dependencies.md lists exactly the dependencies, and whether each is needed to run', () => {
  const rows = table('docs/dependencies.md', 'Package');
  const documented = (toRun: boolean): string[] =>
    rows.filter(([, needed]) => (needed === 'to run') === toRun).flatMap(([name]) => codes(name));
  assert.deepEqual(documented(true).sort(), Object.keys(manifest.dependencies).sort());
  assert.deepEqual(documented(false).sort(), Object.keys(manifest.devDependencies).sort());
});

test('the fields of a plant in docs/data.md and client/README.md are those of the service', () => {
  assert.ok(documentOf('docs/data.md').includes(`with the header \`${csv.header.trim()}\``));
  const fields = ['id', ...plantFields].join(', ');
  assert.ok(documentOf('client/README.md').includes(`\`createPlant({ ${fields} }`));
});

test('docs/errors.md says of each field of a plant what is invalid', () => {
  const documented = table('docs/errors.md', 'Field').flatMap(([field]) => codes(field));
  for (const field of newPlantFields) assert.ok(documented.includes(field), field);
});

test('docs/performance.md lists exactly the parts of the benchmark', () => {
  const documented = table('docs/performance.md', 'Part').flatMap(([part]) => codes(part));
  assert.deepEqual(documented.sort(), parts.map(({ name }) => name).sort());
});

test('every alert named in a document exists, and every log line named in an alert or in docs/operations.md', async () => {
  const alerts = await readFile(join(ROOT, 'deploy/alerts.yaml'), 'utf8');
  const named = matchesIn(documents, /\balert `(\w+)`/g);
  assert.ok(named.length > 0);
  for (const [file, , alert] of named)
    assert.ok(alerts.includes(`alert: ${alert}\n`), `${alert}, which ${file} names`);
  const lines = Object.keys(logEvents);
  const quoted = [
    ...documentOf('docs/operations.md').matchAll(/\blogs `([^`]+)`/gi),
    ...alerts.matchAll(/`([^`]+)` lines?\b/g),
  ];
  assert.ok(quoted.length > 0);
  for (const [, quote = ''] of quoted)
    assert.ok(
      lines.some((line) => line.startsWith(quote)),
      quote,
    );
});

test('docs/operations.md lists exactly the alerts, in their order', async () => {
  const rules = await readFile(join(ROOT, 'deploy/alerts.yaml'), 'utf8');
  const alerts = [...rules.matchAll(/- alert: (\w+)$/gm)].map(([, alert]) => alert);
  const documented = table('docs/operations.md', 'Alert').flatMap(([alert]) => codes(alert));
  assert.deepEqual(documented, alerts);
});

test('every relative link in a document has a target', () => {
  const links = matchesIn(documents, /\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)/g);
  assert.ok(links.length > 0);
  for (const [file = '', , link = ''] of links) {
    assert.ok(existsSync(join(ROOT, dirname(file), link)), `${link}, which ${file} links to`);
  }
});

test('every link to a heading has a target', () => {
  const headings = new Map([...documents].map(([file, text]) => [file, anchorsOf(text)]));
  const links = matchesIn(documents, /\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g);
  assert.ok(links.length > 0);
  for (const [file = '', , path = '', anchor = ''] of links) {
    const target = path === '' ? file : join(dirname(file), path);
    assert.ok(headings.get(target)?.includes(anchor), `${path}#${anchor}, which ${file} links to`);
  }
});

test('docs/README.md links every document', () => {
  const listed = documentOf(join('docs', 'README.md'));
  for (const file of documents.keys()) {
    const link = relative('docs', file.startsWith(join('docs', 'decisions')) ? dirname(file) : file);
    assert.ok(file === join('docs', 'README.md') || listed.includes(`](${link}`), `${file} is listed`);
  }
});

test('every npm script named in a document exists', () => {
  const named = matchesIn(documents, /\bnpm (?:run ([\w:-]+)|(start|test)\b)/g);
  assert.ok(named.length > 0);
  for (const [file, , script, shorthand] of named) {
    assert.ok(
      Object.hasOwn(manifest.scripts, script ?? shorthand ?? ''),
      `npm ${script}, which ${file} names`,
    );
  }
});

test('every command of plant-store named in a document exists', () => {
  const known = new Map(commands.map(({ name, subcommands }) => [name, subcommands]));
  const named = [...documents].flatMap(([file, text]) =>
    codeOf(text).flatMap((code) =>
      [...code.matchAll(/plant-store ([a-z]+)(?: ([a-z]+))?/g)].map((match) => ({ file, match })),
    ),
  );
  assert.ok(named.length > 0);
  for (const { file, match } of named) {
    const [whole, command = '', subcommand = ''] = match;
    const below = known.get(command);
    assert.ok(below !== undefined, `${whole}, which ${file} names`);
    assert.ok(below.length === 0 || below.includes(subcommand), `${whole}, which ${file} names`);
  }
});

test('the decisions are numbered without gaps, and each title has its number', () => {
  const decisions = [...documents].filter(([file]) => file.startsWith(join('docs', 'decisions')));
  const files = decisions.map(([file]) => file).sort();
  assert.ok(files.length > 0);
  for (const [index, file] of files.entries()) {
    const number = String(index + 1).padStart(4, '0');
    assert.match(file, new RegExp(`[\\\\/]${number}-[a-z0-9-]+\\.md$`));
    assert.ok(documentOf(file).startsWith(`# ${number} `), `${file} starts with its number`);
  }
});
