import type { FoundToken } from '../../token.ts';
import { FOUND_TOKEN_COLUMNS, foundTokenValues, type Row, toFoundToken } from '../rows.ts';
import { shareReads } from './shared-reads.ts';
import type { Statement } from './statements.ts';

/** Max tokens that one statement finds. */
const TOKENS_AT_ONCE = 1_024;

/** Returns a function that finds a token by its digest. Lookups that arrive together share a statement. */
export function createTokenLookup(
  read: (statement: Statement) => Promise<readonly Row[]>,
): (digest: Uint8Array) => Promise<FoundToken | undefined> {
  async function findRows(digests: readonly Uint8Array[]): Promise<readonly (Row | undefined)[]> {
    const rows = await read({
      name: 'find-tokens-by-digest',
      text: `SELECT encode(digest, 'hex') AS hex, ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE digest = ANY ($1::bytea[])`,
      values: [digests],
    });
    const rowOf = new Map(rows.map((row) => [row.hex, row]));
    return digests.map((digest) => rowOf.get(Buffer.from(digest).toString('hex')));
  }

  const findRow = shareReads({ max: TOKENS_AT_ONCE, parallel: 1, readAll: findRows });

  return async (digest) => {
    const row = await findRow(digest);
    return row === undefined ? undefined : toFoundToken(foundTokenValues(row));
  };
}

/** Finds a token by its id. Resolves to undefined if there is none. */
export async function findTokenById(
  read: (statement: Statement) => Promise<readonly Row[]>,
  id: string,
): Promise<FoundToken | undefined> {
  const [row] = await read({
    name: 'find-token-by-id',
    // Names the columns: with `*`, a new column would change the result type. PostgreSQL would then reject
    // the prepared statement.
    text: `SELECT ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE id = $1`,
    values: [id],
  });
  return row === undefined ? undefined : toFoundToken(foundTokenValues(row));
}
