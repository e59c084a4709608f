import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readNotice } from './bundle.ts';

/**
 * Writes the notices of the script of the page /docs to api-reference-notices.txt. Scalar publishes the script without
 * them, and its package does not install what the script contains. So this installs `@scalar/api-reference`, from which
 * Scalar builds the script, into a temporary folder, and takes the notices of all packages that it depends on.
 */

const TO = join(import.meta.dirname, 'api-reference-notices.txt');
const SOURCE = '@scalar/api-reference';

/** Lines that differ between packages with the same licence. */
const COPYRIGHT = /^[^\w\n]*copyright (?:\(c\)|©|\d{4}).*$/gim;

interface Manifest {
  readonly version: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
}

/** Returns the folder from which a package of another folder imports a package, by the rule of Node. */
function findPackage(name: string, from: string): string {
  const folder = join(from, 'node_modules', name);
  if (existsSync(join(folder, 'package.json'))) return folder;
  if (dirname(from) === from) throw new Error(`${name} is not installed`);
  return findPackage(name, dirname(from));
}

/** Returns the folders of a package and of all that it depends on. */
function foldersOf(folder: string, found = new Set<string>()): ReadonlySet<string> {
  if (found.has(folder)) return found;
  found.add(folder);
  for (const name of Object.keys(readManifest(folder).dependencies ?? {}))
    foldersOf(findPackage(name, folder), found);
  return found;
}

/** Renders notices. Packages with the same licence text share it; each keeps its lines of copyright. */
function renderNotices(folders: ReadonlySet<string>): string {
  const groups = new Map<string, { readonly text: string; readonly packages: Set<string> }>();
  for (const { name, license, text } of [...folders].sort().map(readNotice)) {
    const holders = (text.match(COPYRIGHT) ?? []).map((line) => `  ${line.trim()}`);
    const shared = text
      .replace(COPYRIGHT, '')
      .replace(/\n{3,}/g, '\n\n')
      .trim();
    const key = shared.replace(/\s+/g, ' ');
    const group = groups.get(key) ?? {
      text: shared || 'These packages have no licence file.',
      packages: new Set(),
    };
    group.packages.add([`${name} (${license})`, ...holders].join('\n'));
    groups.set(key, group);
  }
  return [...groups.values()]
    .map(({ text, packages }) => `${[...packages].join('\n')}\n\n${text}`.trim())
    .join(`\n\n${'-'.repeat(40)}\n\n`);
}

const installed = dirname(dirname(fileURLToPath(import.meta.resolve('@scalar/fastify-api-reference'))));
const { version, devDependencies } = readManifest(installed);
const folder = mkdtempSync(join(tmpdir(), 'plant-store-notices-'));
try {
  writeFileSync(join(folder, 'package.json'), '{"private":true}');
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-save'];
  execFileSync('npm', ['install', ...flags, `${SOURCE}@${devDependencies?.[SOURCE]}`], {
    cwd: folder,
    stdio: 'inherit',
  });
  const head = `The script of the page /docs is that of @scalar/fastify-api-reference ${version}, as Scalar publishes it.
Scalar builds it from these packages. It may contain none or a part of the code of each.`;
  writeFileSync(TO, `${head}\n\n${renderNotices(foldersOf(findPackage(SOURCE, folder)))}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
