import type { FastifyRequest } from 'fastify';
import { createTrust } from './client-address.ts';

/**
 * Returns a function that looks for a proxy that `trusted` (addresses and networks) does not name. Reports, once, the address
 * of a request with `X-Forwarded-For` that is not trusted: if it is a proxy, its clients count as one address.
 */
export function watchUntrustedProxies(
  trusted: readonly string[],
  report: (address: string) => void,
): (request: FastifyRequest) => void {
  const isTrusted = createTrust(trusted);
  let isReported = false;
  return ({ headers, socket: { remoteAddress } }) => {
    if (isReported || headers['x-forwarded-for'] === undefined || remoteAddress === undefined) return;
    if (isTrusted(remoteAddress)) return;
    isReported = true;
    report(remoteAddress);
  };
}
