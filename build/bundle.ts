import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';

interface BundleOptions {
  /** `esm` splits the bundle into chunks, which load on demand. `cjs` has one file per entry point, minified. */
  readonly format: 'cjs' | 'esm';
}

/** By format, lines before each file. Packages in CommonJS require modules of Node. */
const BANNERS = {
  cjs: "const fileUrl = require('node:url').pathToFileURL(__filename).href;",
  esm: "import { createRequire as requireFrom } from 'node:module';\nconst require = requireFrom(import.meta.url);",
};

/** Bundles entry points of `src` with all packages that they import. Returns the paths of the bundled files. */
export async function bundle(
  entryPoints: readonly string[],
  outdir: string,
  { format }: BundleOptions,
): Promise<readonly string[]> {
  const { metafile } = await build({
    absWorkingDir: join(import.meta.dirname, '..'),
    entryPoints: [...entryPoints],
    outbase: 'src',
    outdir,
    bundle: true,
    splitting: format === 'esm',
    platform: 'node',
    format,
    target: 'node24.20',
    banner: { js: BANNERS[format] },
    define: format === 'cjs' ? { 'import.meta.url': 'fileUrl' } : {},
    // pg loads it only if it is installed.
    external: ['pg-native'],
    chunkNames: '[name]-[hash]',
    minifyWhitespace: format === 'cjs',
    minifySyntax: format === 'cjs',
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  return Object.keys(metafile.inputs);
}

/**
 * The files of `src` that the program reads at run time, by their paths from `src`. Builds the script of the page /docs if
 * it is missing, as after an installation without scripts.
 */
export async function packagedFiles(): Promise<readonly string[]> {
  if (!existsSync('src/http/api-reference.js.gz')) await import('./api-reference.ts');
  return globSync('**/*.{sql,gz}', { cwd: 'src' }).sort();
}

/**
 * Renders the names, versions, licences and notices of the packages that files belong to, and the notices of the script
 * of the page /docs.
 */
export function renderThirdParty(files: readonly string[]): string {
  const folders = new Set(files.map((file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? ''));
  const notices = [...folders]
    .filter((folder) => folder !== '')
    .map(readNotice)
    .map(({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}`.trim());
  if (notices.length === 0) throw new Error('no package was bundled');
  const ofPage = readFileSync(join(import.meta.dirname, 'api-reference-notices.txt'), 'utf8').trim();
  return `${[...[...new Set(notices)].sort(), ofPage].join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

interface Notice {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** The licence files of the package, one after the other. Empty if it has none. */
  readonly text: string;
}

/** Reads the notice of the package in a folder. */
export function readNotice(folder: string): Notice {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const texts = readdirSync(folder)
    .filter((file) => /^(?:licen[cs]e|copying|notice)/i.test(file))
    .map((file) => readFileSync(join(folder, file), 'utf8').trim());
  if (texts.length === 0 && license === undefined) throw new Error(`${folder} names no licence`);
  return { name, version, license, text: texts.join('\n\n') };
}
