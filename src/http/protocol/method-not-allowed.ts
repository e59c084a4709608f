import type { FastifyInstance } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { noSuchRoute } from '../error-response.ts';

/** Collects the methods of each path, without the prefix, that is registered in a Fastify scope after this call. */
export function collectMethods(scope: FastifyInstance): Map<string, Set<string>> {
  const methods = new Map<string, Set<string>>();
  scope.addHook('onRoute', ({ routePath, method }) => {
    const known = methods.get(routePath) ?? new Set<string>();
    for (const one of [method].flat()) known.add(one);
    methods.set(routePath, known);
  });
  return methods;
}

/**
 * Adds routes for the methods that a path lacks: OPTIONS gets 204 (RFC 9110 §9.3.7), other methods 405
 * (§15.5.6).
 */
export function answerOtherMethods(
  scope: FastifyInstance,
  methods: ReadonlyMap<string, ReadonlySet<string>>,
): void {
  for (const [url, known] of [...methods]) {
    const allow = [...known, 'OPTIONS'].join(', ');
    scope.route({
      method: 'OPTIONS',
      url,
      handler: async (_request, reply) => reply.code(204).header('allow', allow).send(),
    });
    scope.route({
      method: scope.supportedMethods.filter((method) => method !== 'OPTIONS' && !known.has(method)),
      url,
      onRequest: async ({ method }) => {
        // A HEAD response has the Content-Length of one to GET (RFC 9110 §8.6), so also its message.
        const named = method === 'HEAD' ? 'GET' : method;
        throw new ApiError(40500, `${named} is not allowed for this path; use one of ${allow}`, { allow });
      },
      handler: () => undefined,
    });
  }
  // For `/plants/:id`, adds a route for `/plants/` that responds 404. Otherwise `/plants/` would match with an
  // empty `id`. Each parameter of a path needs such a route, and several paths may share one.
  for (const url of new Set([...methods.keys()].flatMap(prefixesOf))) {
    scope.route({
      method: scope.supportedMethods,
      url,
      onRequest: async () => {
        throw noSuchRoute(scope.prefix);
      },
      handler: () => undefined,
    });
  }
}

/** Returns the part of a path before each of its parameters: `/a/:b/c/:d` → `/a/`, `/a/:b/c/`. */
function prefixesOf(url: string): readonly string[] {
  return [...url.matchAll(/\/:/g)].map(({ index }) => url.slice(0, index + 1));
}
