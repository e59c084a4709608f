import { setImmediate } from 'node:timers/promises';
import type { FoundToken } from '../../token.ts';
import { FOUND_TOKEN_COLUMNS, foundTokenValues, toFoundToken } from '../rows.ts';
import type { Row, Statement } from './statements.ts';

/** A query for the tokens of an event-loop iteration. */
interface LookUp {
  readonly digests: Uint8Array[];
  /** The rows that were found, by digest in hexadecimal. */
  readonly found: Promise<ReadonlyMap<unknown, Row>>;
}

/**
 * Returns a function that finds a token by its digest. All lookups of an event-loop iteration share one query:
 * with many callers, most requests need a lookup, and a separate query would cost more than the rest of a
 * request.
 */
export function createTokenLookUp(
  read: (statement: Statement) => Promise<readonly Row[]>,
): (digest: Uint8Array) => Promise<FoundToken | undefined> {
  let next: LookUp | undefined;

  function begin(): LookUp {
    const digests: Uint8Array[] = [];
    return { digests, found: readAtEndOfIteration(digests) };
  }

  async function readAtEndOfIteration(digests: readonly Uint8Array[]): Promise<ReadonlyMap<unknown, Row>> {
    await setImmediate();
    next = undefined;
    const rows = await read({
      name: 'find-tokens-by-digest',
      text: `SELECT encode(digest, 'hex') AS key, ${FOUND_TOKEN_COLUMNS} FROM tokens WHERE digest = ANY ($1::bytea[])`,
      values: [digests],
    });
    return new Map(rows.map((row) => [row.key, row]));
  }

  return async (digest) => {
    next ??= begin();
    next.digests.push(digest);
    const row = (await next.found).get(Buffer.from(digest).toString('hex'));
    return row === undefined ? undefined : toFoundToken(foundTokenValues(row));
  };
}
