import { rowsOf } from '../../support/engines.ts';

/** The databases that speak PostgreSQL's protocol, and the statements in which they differ for a test. */
export const databaseKinds = {
  postgresql: { creation: 'STRATEGY file_copy', removal: 'WITH (FORCE)' },
  citus: { creation: 'STRATEGY file_copy', removal: 'WITH (FORCE)' },
  cockroachdb: { creation: '', removal: 'CASCADE' },
  yugabytedb: { creation: '', removal: '' },
} as const;

export type DatabaseKind = keyof typeof databaseKinds;

export function isDatabaseKind(name: string | undefined): name is DatabaseKind {
  return name !== undefined && Object.hasOwn(databaseKinds, name);
}

/** Finds out which database a URL leads to. */
export async function detectKind(url: string): Promise<DatabaseKind> {
  const [server] = await rowsOf(url, 'SELECT version() AS version');
  const kind = databaseKindOf(String(server?.version));
  if (kind !== 'postgresql') return kind;
  const citus = await rowsOf(url, "SELECT 1 FROM pg_extension WHERE extname = 'citus'");
  return citus.length > 0 ? 'citus' : kind;
}

/** The database by its version. Citus has that of its PostgreSQL. */
export function databaseKindOf(version: string): DatabaseKind {
  if (version.includes('CockroachDB')) return 'cockroachdb';
  return version.includes('-YB-') ? 'yugabytedb' : 'postgresql';
}

/** Reads one line on what the server is. */
export async function describeServer(url: string, kind: DatabaseKind): Promise<string> {
  const text =
    kind === 'citus' ? 'SELECT version() AS server, citus_version() AS citus' : 'SELECT version() AS server';
  const [row] = await rowsOf(url, text);
  const [server] = String(row?.server).split(' on ');
  return row?.citus === undefined ? String(server) : `${String(row.citus).split(' on ')[0]}, ${server}`;
}
