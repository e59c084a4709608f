import type { Outcome } from '../store.ts';
import { parseScopes, type Token } from '../token.ts';

type Row = Readonly<Record<string, unknown>>;

/** The token in a row of `tokens`; every engine names its columns the same. */
export function toToken(row: Row): Token {
  const { digest } = row;
  const scopes = parseScopes(String(row.scopes));
  if (!(digest instanceof Uint8Array) || scopes === undefined)
    throw new Error('a token in the store is damaged');
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

/** What a key answers that was used before, given its row of `idempotency_keys` and the digest of the plant it comes with now. */
export function toReplay(row: Row, digest: Uint8Array): Outcome {
  const first = row.digest;
  if (!(first instanceof Uint8Array) || Buffer.compare(first, digest) !== 0) return 'keyReused';
  return row.outcome === 'created' ? 'createdReplayed' : 'idTakenReplayed';
}
