import { messageOf } from '../../thrown-errors.ts';
import type { Row } from '../rows.ts';
import { StoreUnavailable } from '../store.ts';
import { isUnsupported, mustCloseConnection, textOf } from './errors.ts';
import type { Connection, Statement } from './statements.ts';

/**
 * Runs `work` in a transaction. `endFor` receives the result of `work`, and decides whether to commit or roll
 * back. Rolls back if `work` rejects. `begin` may also set what holds for the transaction: `BEGIN; SET LOCAL …`.
 */
export async function inTransaction<T>(
  connection: Connection,
  begin: `BEGIN${string}`,
  work: () => Promise<T>,
  endFor: (result: T) => 'COMMIT' | 'ROLLBACK' = () => 'COMMIT',
): Promise<T> {
  try {
    await connection.query({ text: begin });
    const result = await work();
    await connection.query({ text: endFor(result) });
    return result;
  } catch (error: unknown) {
    return rollBack(connection, error);
  }
}

/** Runs a statement in a transaction. Returns no rows, and changes nothing, if the server does not know it. */
export async function queryIfSupported(
  connection: Connection,
  statement: Statement,
): Promise<readonly Row[]> {
  await connection.query({ text: 'SAVEPOINT supported' });
  try {
    return await connection.query(statement);
  } catch (error: unknown) {
    if (!isUnsupported(error)) throw error;
    await connection.query({ text: 'ROLLBACK TO SAVEPOINT supported' });
    return [];
  }
}

/**
 * Rolls a transaction back and rejects with `reason`. If the rollback fails, rejects with StoreUnavailable,
 * so that `use` closes the connection.
 */
export async function rollBack(connection: Connection, reason: unknown): Promise<never> {
  try {
    await connection.query({ text: 'ROLLBACK' });
  } catch (error: unknown) {
    // Throws StoreUnavailable, on which `use` closes the connection. If `use` also closes the connection on
    // `reason`, throws `reason`.
    if (!mustCloseConnection(reason))
      throw new StoreUnavailable(`${textOf(reason)}; then the rollback failed: ${messageOf(error)}`, {
        cause: error,
      });
  }
  throw reason;
}
