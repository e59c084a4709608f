import type { FastifyInstance } from 'fastify';

const METHODS = 'GET, HEAD, POST, DELETE';
const REQUEST_HEADERS = 'Authorization, Content-Type, Idempotency-Key';
const EXPOSED = 'Allow, Idempotent-Replayed, Link, Retry-After, WWW-Authenticate, X-Request-Id';

/** How long a browser may take an answer to a preflight for granted; two hours are the most that Chromium does. */
const PREFLIGHT_SECONDS = '7200';

/**
 * Lets pages of these origins call the service and read its answers, errors included; `*` stands for any origin
 * (Fetch Standard, CORS protocol). Cookies are not asked for: a token is shown by whoever has it.
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  const isAny = origins.includes('*');
  app.addHook('onSend', ({ method, headers }, reply, payload, done) => {
    const { origin } = headers;
    if (!isAny) reply.header('vary', 'Origin');
    if (origin !== undefined && (isAny || origins.includes(origin))) {
      reply.header('access-control-allow-origin', isAny ? '*' : origin);
      if (method === 'OPTIONS' && headers['access-control-request-method'] !== undefined) {
        reply.header('access-control-allow-methods', METHODS);
        reply.header('access-control-allow-headers', REQUEST_HEADERS);
        reply.header('access-control-max-age', PREFLIGHT_SECONDS);
      } else reply.header('access-control-expose-headers', EXPOSED);
    }
    done(null, payload);
  });
}
