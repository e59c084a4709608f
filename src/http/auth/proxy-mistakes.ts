import type { FastifyRequest } from 'fastify';
import type { EventLog } from '../../observability/log-events.ts';
import { createTrust } from './client-address.ts';

const UNTRUSTED =
  'X-Forwarded-For was ignored: its sender is not trusted; if it is a proxy, name it with --trust-proxy';
const NOT_FORWARDED =
  'no X-Forwarded-For from a trusted address; if it is a proxy, let it set this header, since its clients count as one';

/** Max log lines of each kind: any client can cause one, and must not hide a proxy. */
const MAX_LINES = 10;

/**
 * Returns a function that looks for signs of a proxy whose clients count as one address. Logs that an address sends
 * `X-Forwarded-For` and is not in `trusted` (addresses and networks), and that one in it sends none: once for each address.
 */
export function watchProxies(trusted: readonly string[], log: EventLog): (request: FastifyRequest) => void {
  const isTrusted = createTrust(trusted);
  const logged = { [UNTRUSTED]: new Set<string>(), [NOT_FORWARDED]: new Set<string>() };
  return ({ headers, socket: { remoteAddress: address } }) => {
    const isForwarded = headers['x-forwarded-for'] !== undefined;
    const message = isForwarded ? UNTRUSTED : NOT_FORWARDED;
    // The first condition saves time: most services have no proxy.
    if ((trusted.length === 0 && !isForwarded) || logged[message].size >= MAX_LINES) return;
    if (address === undefined || logged[message].has(address) || isTrusted(address) === isForwarded) return;
    logged[message].add(address);
    log.event(message, { address });
  };
}
