import { globSync } from 'node:fs';
import { join, relative } from 'node:path';
import { run } from 'node:test';
import { isOfEveryEngine } from '../../support/engine-counts.ts';
import { type DatabaseKind, databaseKinds } from './database-kind.ts';

const TESTS = join(import.meta.dirname, '../..');

interface SuiteResult {
  readonly passed: number;
  readonly files: number;
  /** The titles of the tests that failed, with the first line of the error. */
  readonly failed: readonly string[];
  /** Tests that the machine lacks something for. */
  readonly skipped: number;
}

interface SuiteServer {
  readonly url: string;
  readonly kind: DatabaseKind;
  /** Other servers that need each database. */
  readonly workers?: readonly string[];
  /** The database that new ones are copied from. */
  readonly template?: string;
}

/**
 * Runs the tests that run on every engine, on the databases of a server: those of the store, the API, the client and
 * the commands. Tests with separate processes (test/system) are not run.
 */
export async function runSuite({ url, kind, workers = [], template }: SuiteServer): Promise<SuiteResult> {
  const { creation, removal } = databaseKinds[kind];
  Object.assign(process.env, {
    TEST_DATABASE_URL: url,
    TEST_DATABASE_CREATION: template === undefined ? creation : `TEMPLATE ${template} ${creation}`,
    TEST_DATABASE_REMOVAL: removal,
    ...(workers.length > 0 ? { TEST_DATABASE_WORKERS: workers.join(' ') } : {}),
  });
  const files = globSync(['*.test.ts', '!(system|generators)/**/*.test.ts'], { cwd: TESTS })
    .map((file) => join(TESTS, file))
    .filter(isOfEveryEngine);
  const failed: string[] = [];
  let passed = 0;
  let skipped = 0;
  const events = run({
    files,
    concurrency: 2,
    timeout: 600_000,
    testNamePatterns: [/\bpostgres\b/],
  });
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const error = 'error' in data.details ? data.details.error : undefined;
    // The error of a suite repeats those of its tests.
    if (data.details.type === 'suite' || /subtests? failed/.test(error?.message ?? '')) continue;
    if (data.skip !== undefined) skipped += 1;
    else if (type === 'test:pass') passed += 1;
    else {
      const [reason] = String(error?.cause ?? error).split('\n');
      failed.push(`${relative(TESTS, data.file ?? '')}: ${data.name}: ${reason}`);
    }
  }
  return { passed, files: files.length, failed, skipped };
}
