import type { Row } from '../../rows.ts';
import { StoreUnavailable } from '../../store.ts';
import { inRecovery } from '../errors.ts';
import type { Connection, Statement } from '../statements.ts';

/**
 * Adds the role of the server (primary or standby) to each row of a result. Every result needs the role,
 * since a pooler may send each statement to a different server. A server without the setting `in_hot_standby`
 * returns NULL and counts as a primary. If the statement finds no rows, the result is one row with only the
 * role.
 */
export function withRole({ text, ...rest }: Statement): Statement {
  return {
    ...rest,
    text: `SELECT current_setting('in_hot_standby', true) = 'on' AS is_standby, result.*
             FROM (SELECT 1) AS one LEFT JOIN (SELECT true AS is_row, found.* FROM (${text}) AS found) AS result ON true`,
  };
}

/**
 * Returns the rows of a statement made by `withRole`. Throws StoreUnavailable if a standby answered, since it
 * may lack acknowledged writes.
 */
export function rowsOfPrimary(rows: readonly Row[]): readonly Row[] {
  const [first] = rows;
  if (first === undefined) throw new StoreUnavailable('PostgreSQL did not return its role');
  if (first.is_standby === true) throw inRecovery();
  return first.is_row === true ? rows : [];
}

/**
 * Rejects with StoreUnavailable on a standby. One check per transaction is enough, since all its statements
 * go to the same server.
 */
export async function requirePrimary(connection: Connection): Promise<void> {
  rowsOfPrimary(await connection.query(withRole({ text: 'SELECT 1' })));
}
