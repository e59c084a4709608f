import { createServer, type Server } from 'node:http';
import type { TestContext } from 'node:test';
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { Provider } from 'oidc-provider';
import { freePort } from './free-port.ts';

/** A real OpenID provider on a local port. */
export interface IdentityProvider {
  readonly issuer: string;
  /** Number of requests for the provider's keys (JWKS). */
  readonly keysRead: number;
  /** The provider's current signing key. */
  readonly key: SigningKey;
  /**
   * Issues an access token by the client credentials grant (RFC 6749 §4.4). The client is the token's
   * subject.
   */
  accessToken(request?: TokenRequest): Promise<string>;
  /** Replaces the provider's signing key and withdraws the previous one. */
  rotate(key: SigningKey): void;
  /** Closes the listener and all connections; `comeUp` listens again on the same port. */
  goDown(): Promise<void>;
  comeUp(): Promise<void>;
}

interface TokenRequest {
  readonly client?: string;
  readonly scope?: string;
  readonly audience?: string;
}

interface SigningKey {
  readonly jwk: JWK & { readonly kid: string; readonly alg: string };
}

export const AUDIENCE = 'https://plants.example';
export const ACCESS_TOKEN_SECONDS = 600;

const SECRET = 'a secret of all clients in the tests';

export async function newSigningKey(kid: string, alg = 'RS256'): Promise<SigningKey> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { jwk: { ...(await exportJWK(privateKey)), kid, alg, use: 'sig' } };
}

/** Starts an OpenID provider. It stops after the test. */
export async function startIdentityProvider(
  t: Pick<TestContext, 'after'>,
  firstKey: SigningKey,
): Promise<IdentityProvider> {
  let key = firstKey;
  let keysRead = 0;
  let answer: ReturnType<Provider['callback']> | undefined;
  const server = createServer((request, response) => {
    if (request.url === '/jwks') keysRead += 1;
    void answer?.(request, response);
  });
  const port = await freePort();
  await listen(server, port);
  const issuer = `http://127.0.0.1:${port}`;
  answer = newProvider(issuer, key).callback();
  t.after(() => stop(server));

  return {
    issuer,
    get keysRead() {
      return keysRead;
    },
    get key() {
      return key;
    },
    accessToken: (request) => requestToken(issuer, request),
    rotate: (next) => {
      key = next;
      answer = newProvider(issuer, key).callback();
    },
    goDown: () => stop(server),
    comeUp: () => listen(server, port),
  };
}

function newProvider(issuer: string, { jwk }: SigningKey): Provider {
  const alg = jwk.alg === 'ES256' ? 'ES256' : 'RS256';
  return new Provider(issuer, {
    jwks: { keys: [jwk] },
    clients: ['greenhouse', 'alice'].map((client) => ({
      client_id: client,
      client_secret: SECRET,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      id_token_signed_response_alg: alg,
    })),
    scopes: ['plants:read', 'plants:write', 'invoices:read'],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, audience) => ({
          audience,
          scope: 'plants:read plants:write invoices:read',
          accessTokenFormat: 'jwt',
          accessTokenTTL: ACCESS_TOKEN_SECONDS,
          jwt: { sign: { alg } },
        }),
      },
    },
    ttl: { ClientCredentials: ACCESS_TOKEN_SECONDS },
  });
}

async function requestToken(issuer: string, request: TokenRequest = {}): Promise<string> {
  const { client = 'greenhouse', scope = 'plants:read plants:write', audience = AUDIENCE } = request;
  const answer = await fetch(`${issuer}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${btoa(`${client}:${encodeURIComponent(SECRET)}`)}` },
    body: new URLSearchParams({ grant_type: 'client_credentials', scope, resource: audience }),
  });
  const body: unknown = await answer.json();
  if (typeof body === 'object' && body !== null && 'access_token' in body) return String(body.access_token);
  throw new Error(`no token: ${JSON.stringify(body)}`);
}

/** Signs a JWT with a key of the provider, with any header `typ` or none. */
export function sign({ jwk }: SigningKey, claims: JWTPayload, typ: string | undefined): Promise<string> {
  const header = { alg: jwk.alg, kid: jwk.kid, ...(typ === undefined ? {} : { typ }) };
  return new SignJWT(claims).setProtectedHeader(header).sign(jwk);
}

async function listen(server: Server, port: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(port, '127.0.0.1', resolve);
  await promise;
}

async function stop(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.close(() => resolve());
  server.closeAllConnections();
  await promise;
}
