import type { Store } from '../../src/store/store.ts';
import { mintSecret, newToken, scopes, type Token } from '../../src/token.ts';

/**
 * Creates a token of an owner in a store. Missing fields get the values of a token with all scopes that never expires.
 * Resolves to its secret and id.
 */
export async function createTokenIn(
  store: Pick<Store, 'write'>,
  owner: string,
  fields: Partial<Pick<Token, 'scopes' | 'expiresAt'>> = {},
  now = Date.now(),
): Promise<{ secret: string; id: string }> {
  const secret = mintSecret();
  const token = newToken(secret, owner, { scopes, expiresAt: null, name: 'test', ...fields }, now);
  await store.write({ kind: 'createToken', token });
  return { secret, id: token.id };
}
