import type { IncomingMessage } from 'node:http';
import { isIPv6 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { countOf } from '../header-names.ts';

/** Matches a registered name or an IPv4 address (RFC 3986 §3.2.2) with an optional port (RFC 9110 §7.2). */
const NAMED_HOST = /^(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+(?::[0-9]*)?$/;
const IPV6_HOST = /^\[([0-9A-Fa-f:.]+)\](?::[0-9]*)?$/;
/** Matches an address of a later version (IPvFuture, RFC 3986 §3.2.2). */
const FUTURE_HOST = /^\[v[0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+\](?::[0-9]*)?$/i;

/** Matches an http URL with a host (RFC 9110 §4.2.1) and without userinfo (§4.2.4). */
const ABSOLUTE_FORM = /^https?:\/\/([^/?#@]+)((?:[/?#].*)?)$/i;

/**
 * Converts a request target from absolute form (`http://host/path`) to origin form (`/path`). A server must
 * accept both forms (RFC 9112 §3.2.2). OPTIONS of a URL without path and query concerns the server (§3.2.4).
 */
export function originForm({ url = '/', method }: Pick<IncomingMessage, 'url' | 'method'>): string {
  if (url.startsWith('/')) return url;
  const [, host = '', rest] = ABSOLUTE_FORM.exec(url) ?? [];
  if (rest === undefined || !isHost(host)) return url;
  return rest === '' && method === 'OPTIONS' ? '*' : rest.replace(/^(?!\/)/, '/');
}

/** Throws an ApiError if a request is not valid HTTP/1.1 (40004), or if its URI exceeds the limit (41400). */
export function rejectMalformed(request: FastifyRequest, uriLimit: number): void {
  const { raw } = request;
  const hosts = countOf(raw.rawHeaders, 'host');
  const { host = '' } = request.headers;
  if (hosts > 1 || (hosts === 0 ? raw.httpVersion === '1.1' : !isHost(host))) {
    throw new ApiError(
      40004,
      'send exactly one Host header: a name or an address, with or without a port (RFC 9112 §3.2)',
    );
  }
  if (!isTarget(raw)) {
    throw new ApiError(
      40004,
      'the request target must be a path or an http URL; the URL needs a host, and has no user or fragment (RFC 9112 §3.2)',
    );
  }
  const coding = request.headers['transfer-encoding'];
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || raw.httpVersion === '1.0')) {
    throw new ApiError(40004, 'the only supported Transfer-Encoding is chunked, in HTTP/1.1 (RFC 9112 §6.1)');
  }
  // `raw.url` no longer has the host of an absolute URL.
  if (request.originalUrl.length > uriLimit) {
    throw new ApiError(41400, `the URI is longer than ${uriLimit} characters`);
  }
  const fault = faultOfTrailers(raw);
  if (fault !== undefined) throw fault;
}

/**
 * Returns an ApiError (40004) if the trailers have `Connection` (RFC 9110 §6.5.1), or its form for old
 * proxies: Node's parser would reject the next request after `close`.
 */
export function faultOfTrailers(message: IncomingMessage): ApiError | undefined {
  // `trailers` creates an object, so it is read only if there are any.
  if (message.rawTrailers.length === 0) return undefined;
  const { connection, 'proxy-connection': proxyConnection } = message.trailers;
  if (connection === undefined && proxyConnection === undefined) return undefined;
  return new ApiError(40004, 'a trailer must not be `Connection` or `Proxy-Connection` (RFC 9110 §6.5.1)');
}

/** The last valid host. Nearly all requests have the same one. */
let lastHost: string | undefined;

/** Returns true for a valid host with an optional port (RFC 9110 §7.2). An empty host is invalid (§4.2.1). */
function isHost(text: string): boolean {
  if (text === lastHost) return true;
  const isValid = NAMED_HOST.test(text) || isIPv6(IPV6_HOST.exec(text)?.[1] ?? '') || FUTURE_HOST.test(text);
  if (isValid) lastHost = text;
  return isValid;
}

/** Returns true for `OPTIONS *`, which is about the server as a whole (RFC 9110 §9.3.7). */
export function isAboutServer({ method, url }: IncomingMessage): boolean {
  return method === 'OPTIONS' && url === '*';
}

/**
 * Returns true for a valid request target (RFC 9112 §3.2) that was already reduced to a path. CONNECT is
 * rejected in socket-input.ts.
 */
function isTarget(message: IncomingMessage): boolean {
  const { url = '' } = message;
  return (url.startsWith('/') && !url.includes('#')) || isAboutServer(message);
}
