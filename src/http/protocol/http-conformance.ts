import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { countOf } from '../header-count.ts';

/** RFC 3986 §3.2.2, a registered name or an IPv4 address, and `[":" port]` of RFC 9110 §7.2. */
const NAMED_HOST = /^(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(?::[0-9]*)?$/;
const IPV6_HOST = /^\[([0-9A-Fa-f:.]+)\](?::[0-9]*)?$/;

/** RFC 9110 §4.2.1 and §4.2.4: an http URL has a host, and should have no userinfo. */
const ABSOLUTE_FORM = /^https?:\/\/([^/?#@]+)((?:[/?#].*)?)$/i;

/** RFC 9112 §3.2.2: a server must accept the absolute form of a request target too. */
export function originForm({ url = '/' }: { url?: string | undefined }): string {
  if (url.startsWith('/')) return url;
  const [, host = '', rest] = ABSOLUTE_FORM.exec(url) ?? [];
  return rest === undefined || !isHost(host) ? url : rest.replace(/^(?!\/)/, '/');
}

/** Throws an ApiError for a message that is not proper HTTP/1.1, whatever its path, or whose URI is longer than the limit. */
export function rejectMalformed(request: FastifyRequest, uriLimit: number): void {
  const { raw } = request;
  if ((raw.url?.length ?? 0) > uriLimit) {
    throw new ApiError(41400, `the URI is longer than ${uriLimit} characters`);
  }
  if (raw.httpVersion !== '1.1' && raw.httpVersion !== '1.0') {
    throw new ApiError(40004, 'the request line must end in HTTP/1.1 (RFC 9112 §2.3)');
  }
  const hosts = countOf(raw.rawHeaders, 'host');
  if (hosts > 1 || (hosts === 0 ? raw.httpVersion === '1.1' : !isHost(request.headers.host ?? ''))) {
    throw new ApiError(
      40004,
      'a request has exactly one Host header, a name or address with a port (RFC 9112 §3.2)',
    );
  }
  if (!isTarget(raw)) {
    throw new ApiError(
      40004,
      'a request target is a path, or an http URL with a host and no user, without a fragment (RFC 9112 §3.2)',
    );
  }
  const coding = request.headers['transfer-encoding'];
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || raw.httpVersion === '1.0')) {
    throw new ApiError(
      40004,
      'the only Transfer-Encoding understood here is chunked, in HTTP/1.1 (RFC 9112 §6.1)',
    );
  }
}

/** RFC 9110 §7.2; an http URL has a host that is not empty (§4.2.1). */
function isHost(text: string): boolean {
  const address = IPV6_HOST.exec(text)?.[1];
  return address === undefined ? NAMED_HOST.test(text) : isIPv6(address);
}

/** RFC 9110 §9.3.7: `OPTIONS *` asks about the server as a whole. */
export function isAboutServer({ method, url }: IncomingMessage): boolean {
  return method === 'OPTIONS' && url === '*';
}

/** RFC 9112 §3.2, once the absolute form is taken for its path; the authority form is for CONNECT, which has no request. */
function isTarget({ method, url = '' }: IncomingMessage): boolean {
  return (url.startsWith('/') || (url === '*' && method === 'OPTIONS')) && !url.includes('#');
}
