import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { glob, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import manifest from '../../package.json' with { type: 'json' };
import { errorMeanings } from '../../src/api-errors.ts';
import { defaultOf, flagOf, settings, variableOf } from '../../src/config.ts';
import { logTo } from '../../src/observability/log.ts';
import { freshFolder } from '../support/engines.ts';
import { newInstallation } from '../support/program.ts';
import { bearer, startService } from '../support/service.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** A command of the program, from its help. */
interface Help {
  readonly command: string;
  readonly subcommands: readonly string[];
  /** The default of each flag, in the format of the documents. */
  readonly flags: ReadonlyMap<string, string>;
}

const documents = await readAll('**/*.md');
const sources = await readAll('src/**/*.ts');
const installation = await newInstallation({ after });
const commands = await readHelp([]);

async function readAll(pattern: string): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for await (const file of glob(pattern, { cwd: ROOT, exclude: ['**/node_modules', '.git', 'dist'] })) {
    texts.set(file, await readFile(join(ROOT, file), 'utf8'));
  }
  assert.ok(texts.size > 0, `there are files ${pattern}`);
  return texts;
}

async function readHelp(words: readonly string[]): Promise<Help[]> {
  const { code, stdout, stderr } = await installation.run([...words, '--help']);
  assert.deepEqual({ code, stderr }, { code: 0, stderr: '' }, `${words.join(' ')} --help`);
  const [, listed = ''] = stdout.split('\nCommands:\n');
  const subcommands = [...listed.matchAll(/^ {2}([a-z]+)(?= )/gm)].map(([, name = '']) => name);
  const own = subcommands.filter((name) => name !== 'help');
  const below = await Promise.all(own.map((name) => readHelp([...words, name])));
  return [{ command: words.join(' '), subcommands: own, flags: flagsIn(stdout) }, ...below.flat()];
}

function flagsIn(help: string): Map<string, string> {
  const flags = new Map<string, string>();
  for (const text of help.split(/\n {2}(?=-)/).slice(1)) {
    const [, flag = ''] = /^(--[a-z-]+)/.exec(text) ?? [];
    const [, fallback] = /default: (".*?"|\w+)\)/.exec(text.replace(/\s+/g, ' ')) ?? [];
    const absent = text.includes('variable:') ? 'empty' : 'off';
    if (flag !== '') flags.set(flag, fallback === undefined ? absent : written(JSON.parse(fallback)));
  }
  return flags;
}

/** Formats a default like the documents. */
function written(fallback: unknown): string {
  return fallback === '' ? 'empty' : `\`${String(fallback)}\``;
}

function documentOf(file: string): string {
  const text = documents.get(file);
  assert.ok(text !== undefined, `there is ${file}`);
  return text;
}

/** Returns the rows of all tables whose first column has the heading. Cells are unparsed. */
function table(file: string, heading: string): string[][] {
  const paragraphs = documentOf(file).trimEnd().split('\n\n');
  const tables = paragraphs
    .filter((text) => text.startsWith('|'))
    .map((text) => text.split('\n').map(cellsOf));
  const found = tables.filter(([head]) => head?.[0] === heading);
  assert.ok(found.length > 0, `${file} has a table of ${heading}`);
  return found.flatMap((rows) => rows.slice(2));
}

function cellsOf(line: string): string[] {
  const cells = line.split('|').slice(1, -1);
  return cells.map((cell) => cell.trim());
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

test('docs/configuration.md lists exactly the settings, with flag, variable and default', () => {
  const documented = table('docs/configuration.md', 'Flag').map((row) => row.slice(0, 3));
  const inCode = settings.map((setting) => [
    `\`${flagOf(setting)}\``,
    `\`${variableOf(setting)}\``,
    written(defaultOf(setting)),
  ]);
  const ofBoth = documented.filter(([flag, variable]) => flag !== '' && variable !== '');
  assert.deepEqual(ofBoth.map(String).sort(), inCode.map(String).sort());
});

test('docs/configuration.md lists exactly the flags of the help, with commands and default', () => {
  const rows = table('docs/configuration.md', 'Flag').filter(([flag]) => flag !== '');
  const documented = rows.flatMap(([flag, , fallback, where]) =>
    codes(where).map((command) => [command, ...codes(flag), fallback]),
  );
  const inHelp = commands.flatMap(({ command, flags }) =>
    [...flags].map(([flag, fallback]) => [command, flag, fallback]),
  );
  assert.deepEqual(documented.map(String).sort(), inHelp.map(String).sort());
});

test('docs/configuration.md lists exactly the variables without a flag', () => {
  const rows = table('docs/configuration.md', 'Flag').filter(([flag]) => flag === '');
  const documented = rows.flatMap(([, variable]) => codes(variable));
  const read = matchesIn(sources, /\b(?:env|environment)\.([A-Z_]+)/g).map(([, , variable]) => variable);
  assert.deepEqual(documented.sort(), [...new Set(read)].sort());
});

test('every flag named in a document exists', () => {
  const known = new Set(commands.flatMap(({ flags }) => [...flags.keys()]));
  const tables = ['docs/configuration.md', 'docs/errors.md', 'docs/operations.md', 'SECURITY.md'];
  for (const file of tables) {
    for (const code of codeOf(documentOf(file)).filter(
      (one) => /^--[a-z-]+$/.test(one) && one !== '--help',
    )) {
      assert.ok(known.has(code), `${code}, which ${file} names`);
    }
  }
});

test('docs/errors.md lists exactly the error codes, with meaning and remedy', () => {
  const rows = table('docs/errors.md', '`error`').map(([code = '', meaning = '']) => [code, meaning]);
  assert.deepEqual(Object.fromEntries(rows), { ...errorMeanings });
  const documented = [...documentOf('docs/errors.md').matchAll(/^- \*\*(\d{5})\.\*\*/gm)].map(
    ([, code]) => code,
  );
  assert.deepEqual(documented.sort(), Object.keys(errorMeanings));
  assert.equal(rows.length, documented.length);
});

test('docs/dependencies.md lists exactly the dependencies, and whether each is needed to run', () => {
  const rows = table('docs/dependencies.md', 'Package');
  const documented = (toRun: boolean): string[] =>
    rows.filter(([, needed]) => (needed === 'to run') === toRun).flatMap(([name]) => codes(name));
  assert.deepEqual(documented(true).sort(), Object.keys(manifest.dependencies).sort());
  assert.deepEqual(documented(false).sort(), Object.keys(manifest.devDependencies).sort());
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

test('CONTRIBUTING lists exactly the npm scripts, except those that npm runs itself', () => {
  const documented = table('CONTRIBUTING.md', 'Command').map(
    ([command]) => /^`npm (?:run )?([\w:-]+)`$/.exec(command ?? '')?.[1] ?? command,
  );
  const own = Object.keys(manifest.scripts).filter((name) => name !== 'dependencies' && name !== 'prepack');
  assert.deepEqual(documented.sort(), own.sort());
});

test('every command of plant-store named in a document exists', () => {
  const known = new Map(commands.map(({ command, subcommands }) => [command, subcommands]));
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

test('docs/operations.md lists exactly our metrics in /metrics, with their labels', async (t) => {
  const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
  const headers = bearer(await service.token());
  assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 200);
  const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
  await service.close();

  const exposed = [...metrics.matchAll(/^# TYPE (plant_store_\w+)/gm)].map(([, name = '']) => name);
  const metricRows = table('docs/operations.md', 'Metric');
  assert.ok(exposed.length > 0);
  assert.deepEqual(metricRows.flatMap(([name]) => codes(name)).sort(), exposed.sort());
  for (const [name = '', labels] of metricRows) {
    const [series = ''] = new RegExp(`^${codes(name)[0]}(?:_count)?\\{.*`, 'm').exec(metrics) ?? [];
    const exposedLabels = [...series.matchAll(/(\w+)="/g)].map(([, label = '']) => label);
    assert.deepEqual(codes(labels), exposedLabels, `the labels of ${name}`);
  }
});

test('docs/operations.md lists exactly the log messages of the sources, with level and fields', () => {
  const documented = table('docs/operations.md', '`msg`').map(([message, level, fields]) => [
    codes(message)[0],
    level,
    codes(fields).sort().join(),
  ]);
  const calls = matchesIn(sources, /(request\.)?\blog\.([a-z]+)\((?:\s*\{([^}]*)\},)?\s*'([^']+)'/g);
  const inCode = calls.map(([, , ofRequest, level, object = '', message]) => {
    const fields = [...object.matchAll(/(?:^|,)\s*(\w+)/g)].map(([, field]) => field);
    return [message, level, [...fields, ...(ofRequest === undefined ? [] : ['requestId'])].sort().join()];
  });
  assert.deepEqual(documented.map(String).sort(), [...inCode, answeredLine()].map(String).sort());
});

/** The line that is written without a call of the logger: its message, level and fields. */
function answeredLine(): readonly (string | undefined)[] {
  const lines: string[] = [];
  const { log, answered } = logTo({ write: (line) => void lines.push(line) }, 'info');
  answered({ requestId: 'r', traceId: 't', operation: 'createPlant', status: 200, ms: 1, owner: 'alice' });
  const { level, time, msg, ...fields }: Record<string, unknown> = JSON.parse(lines.join(''));
  return [String(msg), log.levels.labels[Number(level)], Object.keys(fields).sort().join()];
}

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
