import {
  accessSync,
  constants,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { COMPLETE_COVERAGE } from './complete-coverage.ts';
import { type PostgresServer, startPostgres } from './servers/postgres-server.ts';
import { LOAD_STRIPPED } from './stripped-types.js';

const ROOT = join(import.meta.dirname, '../..');

/** Made by `npm ci`, so a clone with copied dependencies lacks it. */
const API_REFERENCE = join(ROOT, 'src/http/api-reference.js.gz');

let server: PostgresServer | undefined;
let npmCache: string | undefined;
let stripped: string | undefined;

/**
 * Starts one PostgreSQL for all test files, unless TEST_DATABASE_URL names a server. All Node processes share
 * a cache of compiled code, which halves the time of each start. The cache is off while coverage is measured,
 * since it makes coverage less exact. Modules without types, prepared for the run, then save a part of that time. npm gets a
 * cache for the run if it cannot write to that of the user.
 */
export async function globalSetup(): Promise<void> {
  if (!existsSync(API_REFERENCE))
    throw new Error('src/http/api-reference.js.gz is missing: run `npm run dependencies`');
  if (process.execArgv.includes('--experimental-test-coverage')) {
    process.env.NODE_DISABLE_COMPILE_CACHE = '1';
    process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ''} ${LOAD_STRIPPED} ${COMPLETE_COVERAGE}`;
    stripped = stripTypes();
    process.env.STRIPPED_TYPES = stripped;
  } else process.env.NODE_COMPILE_CACHE ??= join(ROOT, 'node_modules/.cache/compiled');
  const { npm_config_cache, NPM_CONFIG_CACHE } = process.env;
  if (!canWrite(npm_config_cache ?? NPM_CONFIG_CACHE ?? join(homedir(), '.npm'))) {
    npmCache = mkdtempSync(join(tmpdir(), 'plant-store-npm-'));
    process.env.npm_config_cache = npmCache;
  }
  // Programs whose output a test compares would print colours into its pipes.
  delete process.env.FORCE_COLOR;
  if (process.env.TEST_DATABASE_URL) return;
  // Disables fsync: test data need not survive a crash, and every new database would wait for the disk.
  server = await startPostgres(['fsync = off', 'full_page_writes = off']);
  process.env.TEST_DATABASE_URL = server.url();
}

export async function globalTeardown(): Promise<void> {
  await server?.remove();
  for (const folder of [npmCache, stripped])
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
}

/** Writes all modules without their types to a new folder. Returns its path. */
function stripTypes(): string {
  const folder = mkdtempSync(join(tmpdir(), 'plant-store-types-'));
  const modules = { cwd: ROOT, exclude: ['**/node_modules', 'test/generators'] };
  for (const file of globSync('{src,client/src,test,bench,build,deploy}/**/*.ts', modules)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    const path = join(ROOT, file);
    // The same text as that of Node, whose URL at the end changes the coverage of the module.
    const sourceUrl = pathToFileURL(path).href;
    writeFileSync(join(folder, file), stripTypeScriptTypes(readFileSync(path, 'utf8'), { sourceUrl }));
  }
  return folder;
}

/** Returns whether npm can use a cache folder, which it would create. */
function canWrite(cache: string): boolean {
  try {
    if (!existsSync(cache)) mkdirSync(cache);
    accessSync(cache, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
