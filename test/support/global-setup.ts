import { type PostgresServer, startPostgres } from './servers/postgres-server.ts';

let server: PostgresServer | undefined;

/** Starts one PostgreSQL for all test files, unless TEST_DATABASE_URL names a server. */
export async function globalSetup(): Promise<void> {
  if (process.env.TEST_DATABASE_URL) return;
  // Without fsync: test data need not survive a crash, and every new database would wait for the disk.
  server = await startPostgres(['fsync = off']);
  process.env.TEST_DATABASE_URL = server.url();
}

export async function globalTeardown(): Promise<void> {
  await server?.remove();
}
