import { StoreUnavailable } from '../store.ts';
import type { Connection, Row, Statement } from './statements.ts';

/**
 * Asks for the role of the server within the statement. A pooler may send each statement to another server, so an earlier
 * answer proves nothing. NULL on servers without the setting. The join gives a row even where nothing is found.
 */
export function withRole({ text, ...rest }: Statement): Statement {
  return {
    ...rest,
    text: `SELECT current_setting('in_hot_standby', true) = 'on' AS is_standby, result.*
             FROM (SELECT 1) AS one LEFT JOIN (SELECT true AS is_row, found.* FROM (${text}) AS found) AS result ON true`,
  };
}

/** The rows of a statement made by `withRole`. Throws StoreUnavailable for a standby, which may lack acknowledged writes. */
export function rowsOfPrimary(rows: readonly Row[]): readonly Row[] {
  const [first] = rows;
  if (first === undefined) throw new StoreUnavailable('PostgreSQL left out its role');
  if (first.is_standby === true) throw new StoreUnavailable('the host is not the primary');
  return first.is_row === true ? rows : [];
}

/** Rejects on a standby; within a transaction, since the rest of it goes to the same server. */
export async function requirePrimary(connection: Connection): Promise<void> {
  rowsOfPrimary(await connection.query(withRole({ text: 'SELECT 1' })));
}
