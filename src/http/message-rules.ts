import type { IncomingMessage } from 'node:http';
import type { FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { Refusal } from '../errors.ts';

/** `uri-host [":" port]`, RFC 9110 §7.2 and RFC 3986 §3.2.2. */
const HOST = /^(?:\[[0-9A-Za-z.:]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?$/;

/** RFC 9110 §4.2.1 and §4.2.4: an http URL has a host, and should have no userinfo. */
const ABSOLUTE_FORM = /^https?:\/\/(?!:)[^/?#@]+((?:[/?#].*)?)$/i;

/** RFC 9112 §3.2.2: a server must accept the absolute form of a request target too. */
export function originForm({ url = '/' }: { url?: string | undefined }): string {
  if (url.startsWith('/')) return url;
  return ABSOLUTE_FORM.exec(url)?.[1]?.replace(/^(?!\/)/, '/') ?? url;
}

/** Throws a Refusal for a message that is not proper HTTP/1.1, whatever its path, or whose URI is longer than the limit. */
export function refuseMalformed(request: FastifyRequest, uriLimit: number): void {
  const { raw } = request;
  if ((raw.url?.length ?? 0) > uriLimit) {
    throw new Refusal(41400, `the URI is longer than ${uriLimit} characters`);
  }
  let hosts = 0;
  let authorizations = 0;
  for (let index = 0; index < raw.rawHeaders.length; index += 2) {
    const name = raw.rawHeaders[index] ?? '';
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
    else if (name.length === 13 && name.toLowerCase() === 'authorization') authorizations += 1;
  }
  if (raw.httpVersion !== '1.1' && raw.httpVersion !== '1.0') {
    throw new Refusal(40004, 'the request line must end in HTTP/1.1 (RFC 9112 §2.3)');
  }
  if (hosts > 1 || (hosts === 0 && raw.httpVersion === '1.1') || !HOST.test(request.headers.host ?? '')) {
    throw new Refusal(
      40004,
      'a request has exactly one Host header, a name or address with a port (RFC 9112 §3.2)',
    );
  }
  if (!isTarget(raw)) {
    throw new Refusal(
      40004,
      'a request target is a path, or an http URL with a host and no user, without a fragment (RFC 9112 §3.2)',
    );
  }
  if (authorizations > 1) throw new Refusal(40000, 'the header `Authorization` must be sent once');
  const { expect, 'transfer-encoding': coding } = request.headers;
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || raw.httpVersion === '1.0')) {
    throw new Refusal(
      40004,
      'the only Transfer-Encoding understood here is chunked, in HTTP/1.1 (RFC 9112 §6.1)',
    );
  }
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    throw new Refusal(41700, 'the only expectation met here is 100-continue');
  }
}

/** RFC 9112 §3.2, once the absolute form is taken for its path; the authority form is for CONNECT, which has no request. */
function isTarget({ method, url = '' }: IncomingMessage): boolean {
  return (url.startsWith('/') || (url === '*' && method === 'OPTIONS')) && !url.includes('#');
}

/**
 * A hook that refuses content that is encoded, not JSON or larger than the limit (in bytes), before a byte of it is read,
 * and a request without content where it is required.
 */
export function refuseContent(limit: number, required: boolean) {
  return (request: FastifyRequest, _reply: unknown, done: HookHandlerDoneFunction): void => {
    const { headers } = request;
    const length = headers['content-length'];
    if ((length !== undefined && length !== '0') || headers['transfer-encoding'] !== undefined) {
      refuseEncoding(headers['content-encoding']);
      refuseMediaType(headers['content-type']);
      if (Number(length) > limit) {
        throw new Refusal(41300, `the body is larger than ${limit} bytes`, { connection: 'close' });
      }
    } else if (required) {
      throw new Refusal(40001, 'the body is missing; it must be a JSON object');
    }
    done();
  };
}

function refuseEncoding(encoding: string | undefined): void {
  if (encoding === undefined || encoding.trim().toLowerCase() === 'identity') return;
  throw new Refusal(41500, 'the body must be sent as it is, without Content-Encoding');
}

function refuseMediaType(type: string | undefined): void {
  if (type === 'application/json' || type?.split(';', 1)[0]?.trim().toLowerCase() === 'application/json')
    return;
  throw new Refusal(41500, 'the Content-Type must be application/json');
}
