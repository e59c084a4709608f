import { type PostgresServer, startPostgres } from './servers/postgres-server.ts';

let server: PostgresServer | undefined;

/** One PostgreSQL for all test files, unless TEST_DATABASE_URL names a server to use. */
export async function globalSetup(): Promise<void> {
  if (process.env.TEST_DATABASE_URL) return;
  // What is written need not outlive the machine; a new database for each test would otherwise wait for its disk.
  server = await startPostgres(['fsync = off']);
  process.env.TEST_DATABASE_URL = server.url();
}

export async function globalTeardown(): Promise<void> {
  await server?.remove();
}
