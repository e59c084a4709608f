import type { FastifyReply, FastifyRequest } from 'fastify';
import { METHODS } from '../operation.ts';

/** The headers of the operations, and those of W3C Trace Context. */
const REQUEST_HEADERS = 'Authorization, Content-Type, Idempotency-Key, traceparent, tracestate';
const EXPOSED = 'Allow, Idempotent-Replayed, Link, Retry-After, WWW-Authenticate, X-Request-Id';

/** Seconds for which a browser may cache the response to a preflight. Chromium's limit is two hours. */
const PREFLIGHT_SECONDS = '7200';

/**
 * Adds the CORS headers (Fetch Standard) that let pages of the given origins read a response, errors
 * included. `*` means any origin. Access-Control-Allow-Credentials is not sent: authentication is by header,
 * not by cookie.
 */
export function addOrigin(
  origins: readonly string[],
  { method, headers }: FastifyRequest,
  reply: FastifyReply,
): void {
  if (origins.length === 0) return;
  const isAny = origins.includes('*');
  const { origin } = headers;
  if (!isAny) reply.header('vary', 'Origin');
  if (origin === undefined || !(isAny || origins.includes(origin))) return;
  reply.header('access-control-allow-origin', isAny ? '*' : origin);
  if (method === 'OPTIONS' && headers['access-control-request-method'] !== undefined) {
    reply.header('access-control-allow-methods', METHODS.join(', '));
    reply.header('access-control-allow-headers', REQUEST_HEADERS);
    reply.header('access-control-max-age', PREFLIGHT_SECONDS);
  } else reply.header('access-control-expose-headers', EXPOSED);
}

/**
 * Returns the CORS headers of a response to a parser error, for which the `Origin` header is unknown. Only `*` or a single
 * configured origin fits each request: a browser compares the origin with its page's.
 */
export function commonOrigin(origins: readonly string[]): Readonly<Record<string, string>> {
  const isAny = origins.includes('*');
  const [only] = origins;
  if (only === undefined || !(isAny || origins.length === 1)) return {};
  return {
    ...(isAny ? {} : { vary: 'Origin' }),
    'access-control-allow-origin': isAny ? '*' : only,
    'access-control-expose-headers': EXPOSED,
  };
}
