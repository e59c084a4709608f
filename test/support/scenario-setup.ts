import assert from 'node:assert/strict';
import { mintSecret, type Scope, scopes } from '../../src/token.ts';
import { headerOf, sendRequest } from './clients/raw-http.ts';
import type { Exchange, Scenario, TokenKind } from './data/api-scenarios.ts';
import type { TestService } from './service.ts';
import { create } from './store-setup.ts';
import { createTokenIn } from './tokens.ts';

/** Creates the plants that a row of `api-scenarios.ts` requires. */
export async function plant({ store }: TestService, owner: string, { given = [] }: Scenario): Promise<void> {
  const writes = given.map(({ id, of, ...fields }) =>
    store.write(create(id, { ...fields, owner: ownerOf(owner, of) })),
  );
  assert.deepEqual(
    await Promise.all(writes),
    given.map(() => 'created'),
  );
}

function ownerOf(owner: string, other: 'another owner' | undefined): string {
  return other === undefined ? owner : `${owner}-other`;
}

/**
 * Sends requests one after the other. Resolves to the URL in the last `Link` header, and the cursor in this
 * URL.
 */
export async function exchangeAll(
  service: TestService,
  owner: string,
  exchanges: readonly Exchange[],
): Promise<Record<string, string>> {
  let link: string | undefined;
  for (const exchange of exchanges) {
    const token = await service.token(ownerOf(owner, exchange.by));
    const headers = [['Authorization', `Bearer ${token}`] as const, ...(exchange.headers ?? [])];
    const path = service.config.basePath + exchange.path.slice(service.config.basePath.length);
    const answer = await sendRequest(service.url, { ...exchange, path, headers });
    const body = answer.body.toString();
    assert.equal(answer.status, exchange.status, `${exchange.method} ${path}: ${body}`);
    if (exchange.answer !== undefined) assert.equal(body, exchange.answer, `${exchange.method} ${path}`);
    link = headerOf(answer.headers, 'link') ?? link;
  }
  const next = /^<([^>]*)>/.exec(link ?? '')?.[1];
  if (next === undefined) return {};
  return { next, cursor: new URL(next, service.url).searchParams.get('cursor') ?? '' };
}

/** Creates a token of the kind that a row of `api-scenarios.ts` requires. */
export async function secretOf(service: TestService, owner: string, kind: TokenKind): Promise<string> {
  const { now } = service.clock;
  switch (kind) {
    case 'full':
      return makeToken(service, owner, scopes, null);
    case 'reader':
      return makeToken(service, owner, ['plants:read'], null);
    case 'writer':
      return makeToken(service, owner, ['plants:write'], null);
    case 'expired':
      return makeToken(service, owner, scopes, now);
    case 'revoked':
      return makeToken(service, owner, scopes, null, now);
    case 'unknown':
      return mintSecret();
    case 'mistyped': {
      const secret = await makeToken(service, owner, scopes, null);
      return secret.slice(0, -1) + (secret.endsWith('0') ? '1' : '0');
    }
  }
}

async function makeToken(
  { store, clock }: TestService,
  owner: string,
  scopes: readonly Scope[],
  expiresAt: number | null,
  revokedAt?: number,
): Promise<string> {
  const { secret, id } = await createTokenIn(store, owner, { scopes, expiresAt }, clock.now - 1_000);
  if (revokedAt !== undefined) await store.write({ kind: 'revokeToken', id, at: revokedAt });
  return secret;
}
