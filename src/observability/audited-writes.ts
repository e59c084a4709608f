import { isOutcomeUnknown, type Store, type Write } from '../store/store.ts';
import type { Token } from '../token.ts';
import type { Audit, WriteOutcome } from './audit-log.ts';

/** Stores a new token, and audits it. Rejects with the error of the store. */
export function storeToken(store: Store, audit: Audit, token: Token): Promise<void> {
  return writeAudited(store, { kind: 'createToken', token }, (outcome) => audit.tokenCreated(token, outcome));
}

/** Revokes a token, and audits it. Rejects with the error of the store. */
export function revokeToken(store: Store, audit: Audit, id: string): Promise<void> {
  const write = { kind: 'revokeToken', id, at: Date.now() } as const;
  return writeAudited(store, write, (outcome) => audit.tokenRevoked(id, outcome));
}

/** Audits a write also if its outcome is unknown: the audit lines since a backup name all tokens that it lacks. */
async function writeAudited(
  store: Store,
  write: Write,
  audit: (outcome: WriteOutcome) => void,
): Promise<void> {
  try {
    await store.write(write);
  } catch (error: unknown) {
    if (isOutcomeUnknown(error)) audit('unknown');
    throw error;
  }
  audit('confirmed');
}
