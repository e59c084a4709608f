import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import manifest from '../../../package.json' with { type: 'json' };

const ROOT = join(import.meta.dirname, '../../..');

const CONFIGURATION = [
  '.dependency-cruiser.mjs',
  '.gitignore',
  '.markdownlint-cli2.jsonc',
  'biome.json',
  'cspell-phrases.json',
  'cspell-words.txt',
  'cspell.json',
  'knip.json',
];

/** A project of a few lines that every tool accepts. */
const SOUND: Readonly<Record<string, string>> = {
  'package.json': '{\n  "name": "sound",\n  "type": "module"\n}\n',
  'README.md': '# Sound\n',
  'src/cli/main.ts': "import { plants } from '../plants.ts';\n\nplants();\n",
  'src/plants.ts': 'export function plants(): void {}\n',
  'client/src/client.ts': 'export const client = {};\n',
};

interface Violation {
  readonly title: string;
  /** The first word of the step of `npm run check` that reports it. */
  readonly tool: string;
  /** Files to add to the sound project. */
  readonly files: Readonly<Record<string, string>>;
  readonly reports: readonly RegExp[];
}

const typeCircle = {
  'src/root.ts': "import type { Leaf } from './leaf.ts';\n\nexport type Root = Leaf[];\n",
  'src/leaf.ts': "import type { Root } from './root.ts';\n\nexport type Leaf = { readonly root: Root };\n",
};

const violations: readonly Violation[] = [
  {
    title: 'an import from one engine into the other',
    tool: 'depcruise',
    files: {
      'src/store/sqlite/engine.ts': "import { pool } from '../postgres/engine.ts';\n\npool();\n",
      'src/store/postgres/engine.ts': 'export function pool(): void {}\n',
    },
    reports: [/error engines-apart: src\/store\/sqlite\/engine\.ts/],
  },
  {
    title: 'a type import from the domain into a folder',
    tool: 'depcruise',
    files: {
      'src/plant.ts': "import type { Page } from './store/store.ts';\n\nexport type Plants = Page;\n",
      'src/store/store.ts': 'export type Page = string;\n',
    },
    reports: [/error domain-alone: src\/plant\.ts/],
  },
  {
    title: 'a circle of type imports',
    tool: 'depcruise',
    files: typeCircle,
    reports: [/error no-circles: src\/leaf\.ts/],
  },
  {
    title: 'a circle of type imports',
    tool: 'biome',
    files: typeCircle,
    reports: [/lint\/suspicious\/noImportCycles/],
  },
  {
    title: 'a file name in camel case',
    tool: 'biome',
    files: { 'src/rootOfPlants.ts': 'export const root = 1;\n' },
    reports: [/lint\/style\/useFilenamingConvention/],
  },
  {
    title: 'a barrel file',
    tool: 'biome',
    files: { 'src/all.ts': "export * from './plants.ts';\n" },
    reports: [/lint\/performance\/noBarrelFile/],
  },
  {
    title: 'a default export',
    tool: 'biome',
    files: { 'src/root.ts': 'export default 1;\n' },
    reports: [/lint\/style\/noDefaultExport/],
  },
  {
    title: 'a read of the environment outside the command line',
    tool: 'biome',
    files: { 'src/root.ts': 'export const port = process.env.PORT;\n' },
    reports: [/lint\/style\/noProcessEnv/],
  },
  {
    title: 'a use of the process by a command',
    tool: 'biome',
    files: { 'src/cli/root.ts': 'export const folder = process.cwd();\n' },
    reports: [/lint\/style\/noRestrictedGlobals/],
  },
  {
    title: 'a source file of 401 lines',
    tool: 'biome',
    files: { 'src/root.ts': `${'// A line.\n'.repeat(400)}export const root = 1;\n` },
    reports: [/lint\/style\/noExcessiveLinesPerFile/],
  },
  {
    title: 'an unused export and an unused file',
    tool: 'knip',
    files: {
      'src/plants.ts': 'export function plants(): void {}\n\nexport function unused(): void {}\n',
      'src/root.ts': 'export {};\n',
    },
    reports: [
      /Unused exports \(1\)\s+unused\s+function\s+src\/plants\.ts/,
      /Unused files \(1\)\s+src\/root\.ts/,
    ],
  },
  {
    title: 'a page with a heading level left out',
    tool: 'markdownlint-cli2',
    files: { 'docs/page.md': '# Page\n\n### Detail\n' },
    reports: [/docs\/page\.md:3 error MD001\/heading-increment/],
  },
  // cspell:disable
  {
    title: 'flagged words, a flagged phrase and a spelling mistake',
    tool: 'cspell',
    files: {
      'src/root.ts': '// The store refuses it.\nexport const isForgotten = 1;\n',
      'README.md': '# Sound\n\nThe batch is carried out.\n\nThe databse is open.\n',
    },
    reports: [
      /src\/root\.ts:1:14 - Forbidden word/,
      /src\/root\.ts:2:16 - Forbidden word/,
      /README\.md:3:14 - Forbidden word/,
      /README\.md:5:5 - (?:Misspelled|Unknown) word/,
    ],
  },
  // cspell:enable
];

/** Runs the steps of `npm run check` that use a tool, in a folder. Resolves to their exit codes and all their output. */
async function runSteps(tool: string, folder: string): Promise<{ codes: readonly number[]; output: string }> {
  const steps = manifest.scripts.check.split(' && ').filter((step) => step.split(' ')[0] === tool);
  assert.ok(steps.length > 0, `npm run check runs ${tool}`);
  const path = `${join(ROOT, 'node_modules/.bin')}${delimiter}${process.env.PATH}`;
  const options = { cwd: folder, env: { ...process.env, PATH: path, NO_COLOR: '1', FORCE_COLOR: '0' } };
  const codes: number[] = [];
  let output = '';
  for (const step of steps)
    await new Promise<void>((resolve) => {
      execFile('bash', ['-c', step], options, (error, stdout, stderr) => {
        codes.push(error === null ? 0 : Number(error.code));
        output += stdout + stderr;
        resolve();
      });
    });
  return { codes, output };
}

describe('npm run check', { concurrency: 2 }, () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'plant-store-check-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  async function makeProject(name: string, files: Readonly<Record<string, string>>): Promise<string> {
    const project = join(folder, name);
    for (const [path, text] of Object.entries({ ...SOUND, ...files })) {
      await mkdir(dirname(join(project, path)), { recursive: true });
      await writeFile(join(project, path), text);
    }
    for (const file of CONFIGURATION) await cp(join(ROOT, file), join(project, file));
    return project;
  }

  for (const tool of new Set(violations.map((violation) => violation.tool))) {
    test(`${tool}: no violation → exit code 0`, async () => {
      const { codes, output } = await runSteps(tool, await makeProject(`sound-${tool}`, {}));
      assert.ok(
        codes.every((code) => code === 0),
        output,
      );
    });
  }

  for (const [index, { title, tool, files, reports }] of violations.entries()) {
    test(`${tool}: ${title} → failure that names the rule and the file`, async () => {
      const { codes, output } = await runSteps(tool, await makeProject(`planted-${index}`, files));
      assert.ok(
        codes.every((code) => code !== 0),
        output,
      );
      for (const report of reports) assert.match(output, report);
    });
  }
});
