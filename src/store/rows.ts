import { digestPlant, type Plant, type PlantRow, plantFields } from '../plant.ts';
import { OperatorError } from '../thrown-errors.ts';
import { type FoundToken, parseScopes, type Token } from '../token.ts';
import type { KeyRow } from './bulk-store.ts';
import type { Outcome } from './store.ts';

/** A row of a database, by column name. */
export type Row = Readonly<Record<string, unknown>>;

/**
 * Limits of a page in commands that read all data, such as `export`. ROWS_IN_PAGE: max rows.
 * CHARACTERS_IN_PAGE: approximate max characters; with several times as many, V8 reaches the limit of a small heap before
 * it has collected earlier pages.
 */
export const ROWS_IN_PAGE = 1_000;
export const CHARACTERS_IN_PAGE = 256 * 1024;

/** Query for any row, to detect an empty store. Both engines have the same table names. */
export const FIND_ANY_ROW =
  'SELECT 1 FROM plants UNION ALL SELECT 1 FROM tokens UNION ALL SELECT 1 FROM idempotency_keys LIMIT 1';

export function charactersIn(row: { readonly [F in keyof Plant]?: unknown }): number {
  let characters = 0;
  for (const field of plantFields) characters += lengthOf(row[field]);
  return characters;
}

function lengthOf(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}

/** Columns of the table `tokens`, in the order of `tokenValues`. */
export const tokenColumns = [
  'owner',
  'id',
  'digest',
  'name',
  'scopes',
  'created_at',
  'expires_at',
  'revoked_at',
  'last_used_at',
] as const;
export const TOKEN_COLUMNS = tokenColumns.join(', ');

/** Columns of the table `tokens` without `digest`, in the order of `toFoundToken`. */
const foundColumns = tokenColumns.filter((column) => column !== 'digest');
export const FOUND_TOKEN_COLUMNS = foundColumns.join(', ');

/** A row that this version cannot read. The message names the row, its fault and the remedy. */
class RowUnreadable extends OperatorError {
  override readonly name = 'RowUnreadable';
}

/** Returns the statement that deletes the row that `key` selects. */
function deletionOf(table: 'tokens' | 'idempotency_keys', key: Row): string {
  const where = Object.entries(key).map(
    ([column, value]) => `${column} = '${String(value).replaceAll("'", "''")}'`,
  );
  return `delete this row: DELETE FROM ${table} WHERE ${where.join(' AND ')}`;
}

/** Converts the values of FOUND_TOKEN_COLUMNS. Throws RowUnreadable if a scope is unknown. */
export function toFoundToken(values: readonly unknown[]): FoundToken {
  const [owner, id, name, scopeList, createdAt, expiresAt, revokedAt, lastUsedAt] = values;
  const scopes = parseScopes(String(scopeList));
  if (scopes === undefined)
    throw new RowUnreadable(
      `the token ${id} has scopes that this version does not know; run the version that wrote it, or if none did, ${deletionOf('tokens', { id })}`,
    );
  return {
    id: String(id),
    owner: String(owner),
    name: String(name),
    scopes,
    createdAt: Number(createdAt),
    expiresAt: toTime(expiresAt),
    revokedAt: toTime(revokedAt),
    lastUsedAt: toTime(lastUsedAt),
  };
}

/** Returns the values of FOUND_TOKEN_COLUMNS in a row of the table `tokens`. */
export function foundTokenValues(row: Row): readonly unknown[] {
  return foundColumns.map((column) => row[column]);
}

/** Converts a row of the table `tokens`, which has the same columns in both engines. Throws RowUnreadable. */
export function toToken(row: Row): Token {
  const { id, digest } = row;
  if (!(digest instanceof Uint8Array))
    throw new RowUnreadable(
      `the token ${id} is damaged: its digest is not binary; restore a backup, or ${deletionOf('tokens', { id })}`,
    );
  return { ...toFoundToken(foundTokenValues(row)), digest };
}

function toTime(value: unknown): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/**
 * Returns the outcome of a creation whose idempotency key is in use. The creation is a replay if the
 * stored digest is that of its plant.
 */
export function toReplay({ digest }: Row, plant: PlantRow): Outcome {
  return digest instanceof Uint8Array && Buffer.compare(digest, digestPlant(plant)) === 0
    ? 'createdReplayed'
    : 'keyReused';
}

/**
 * Columns of the table `plants` for the fields of a plant, without its key (owner and id). Each column has
 * the name of its field.
 */
export const FIELD_COLUMNS = plantFields.join(', ');

/** Columns of the table `plants`, in the order of `plantValues`. */
export const PLANT_COLUMNS = `owner, id, ${FIELD_COLUMNS}`;

/** Values of a plant, in the order of PLANT_COLUMNS. */
export function plantValues(plant: PlantRow) {
  return [plant.owner, plant.id, ...plantFields.map((field) => plant[field])];
}

/** Converts a row with the columns of PLANT_COLUMNS. Throws RowUnreadable if a value has not the type of its column. */
export function readPlantRow(row: Row): PlantRow {
  return {
    owner: readText(row, 'owner'),
    id: readId(row),
    name: readText(row, 'name'),
    tag: row.tag === null ? null : readText(row, 'tag'),
  };
}

/** SQLite returns a bigint, PostgreSQL a text. */
function readId(row: Row): bigint {
  const { id } = row;
  if (typeof id === 'bigint') return id;
  if (typeof id === 'string' && /^-?\d+$/.test(id)) return BigInt(id);
  throw damagedPlant(row, 'its id is not an integer');
}

function readText(row: Row, column: 'owner' | keyof Plant): string {
  const value = row[column];
  if (typeof value === 'string') return value;
  throw damagedPlant(row, `its ${column} is not text`);
}

function damagedPlant({ id, owner }: Row, fault: string): RowUnreadable {
  return new RowUnreadable(
    `the plant ${id} of ${owner} is damaged: ${fault}; run \`plant-store check\`, and restore a backup`,
  );
}

/** Values of a token, in the order of `tokenColumns`. */
export function tokenValues(token: Token) {
  const { owner, id, digest, name, scopes, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  return [owner, id, digest, name, scopes.join(' '), createdAt, expiresAt, revokedAt, lastUsedAt] as const;
}

export function toKeyRow(row: Row): KeyRow {
  const { owner, key, digest } = row;
  if (!(digest instanceof Uint8Array))
    throw new RowUnreadable(
      `the idempotency key ${key} of ${owner} is damaged: its digest is not binary; restore a backup, or ${deletionOf('idempotency_keys', { owner, key })}`,
    );
  return {
    owner: String(owner),
    key: String(key),
    digest,
    outcome: String(row.outcome),
    firstUsedAt: Number(row.first_used_at),
  };
}
