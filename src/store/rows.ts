import { parseScopes, type Token } from '../token.ts';
import type { KeyRow, PlantRow } from './bulk-store.ts';
import type { Outcome } from './store.ts';

type Row = Readonly<Record<string, unknown>>;

/** A page of rows, for commands that move all there are: so many at most, and so many characters of names and tags about. */
export const ROWS_IN_PAGE = 1_000;
export const CHARACTERS_IN_PAGE = 4 * 1024 * 1024;

/** Finds a row if the store has any; every engine names its tables the same. */
export const FIND_ANY_ROW =
  'SELECT 1 FROM plants UNION ALL SELECT 1 FROM tokens UNION ALL SELECT 1 FROM idempotency_keys LIMIT 1';

/** How many characters of names and tags a row has. */
export function charactersIn({ name, tag }: Row): number {
  return lengthOf(name) + lengthOf(tag);
}

function lengthOf(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}

/** The token in a row of `tokens`; every engine names its columns the same. */
export function toToken(row: Row): Token {
  const { digest } = row;
  const scopes = parseScopes(String(row.scopes));
  if (!(digest instanceof Uint8Array) || scopes === undefined)
    throw new Error(`the token ${row.id} in the store is damaged`);
  return {
    id: String(row.id),
    digest,
    owner: String(row.owner),
    name: String(row.name),
    scopes,
    createdAt: Number(row.created_at),
    expiresAt: toTime(row.expires_at),
    revokedAt: toTime(row.revoked_at),
    lastUsedAt: toTime(row.last_used_at),
  };
}

function toTime(value: unknown): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/** The outcome of a key that created a plant before, given its row of `idempotency_keys` and the digest of the plant now. */
export function toReplay(row: Row, digest: Uint8Array): Outcome {
  const first = row.digest;
  return first instanceof Uint8Array && Buffer.compare(first, digest) === 0 ? 'createdReplayed' : 'keyReused';
}

/** The plant in a row of `plants`. */
export function toPlantRow(row: Row): PlantRow {
  return {
    owner: String(row.owner),
    id: typeof row.id === 'bigint' ? row.id : BigInt(String(row.id)),
    name: String(row.name),
    tag: row.tag === null ? null : String(row.tag),
  };
}

/** The columns of `tokens`, in the order in which `columnsOf` has their values. */
export const TOKEN_COLUMNS =
  'owner, id, digest, name, scopes, created_at, expires_at, revoked_at, last_used_at';

/** The values of a token, in the order of `TOKEN_COLUMNS`. */
export function columnsOf(token: Token) {
  const { owner, id, digest, name, scopes, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  return [owner, id, digest, name, scopes.join(' '), createdAt, expiresAt, revokedAt, lastUsedAt] as const;
}

/** The key in a row of `idempotency_keys`. */
export function toKeyRow(row: Row): KeyRow {
  const { digest } = row;
  if (!(digest instanceof Uint8Array))
    throw new Error(`the idempotency key ${row.key} of ${row.owner} in the store is damaged`);
  return {
    owner: String(row.owner),
    key: String(row.key),
    digest,
    outcome: String(row.outcome),
    firstUsedAt: Number(row.first_used_at),
  };
}
