import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { COMPLETE_COVERAGE } from './complete-coverage.ts';
import { type PostgresServer, startPostgres } from './servers/postgres-server.ts';

/** Made by `npm ci`, so a clone with copied dependencies lacks it. */
const API_REFERENCE = join(import.meta.dirname, '../../src/http/api-reference.js.gz');

let server: PostgresServer | undefined;
let npmCache: string | undefined;

/**
 * Starts one PostgreSQL for all test files, unless TEST_DATABASE_URL names a server. All Node processes share
 * a cache of compiled code, which halves the time of each start. The cache is off while coverage is measured,
 * since it makes coverage less exact. npm gets a cache for the run if it cannot write to that of the user.
 */
export async function globalSetup(): Promise<void> {
  if (process.execArgv.includes('--experimental-test-coverage')) {
    process.env.NODE_DISABLE_COMPILE_CACHE = '1';
    process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ''} ${COMPLETE_COVERAGE}`;
  } else process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, '../../node_modules/.cache/compiled');
  if (!existsSync(API_REFERENCE))
    throw new Error('src/http/api-reference.js.gz is missing: run `npm run dependencies`');
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
  if (npmCache !== undefined) rmSync(npmCache, { recursive: true, force: true });
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
