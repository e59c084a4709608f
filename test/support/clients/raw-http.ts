import { connect } from 'node:net';
import { PATIENCE_MS } from '../patience.ts';

export type Header = readonly [name: string, value: string];

/** A request that is sent unchanged, even when invalid. */
export interface RawRequest {
  readonly method: string;
  /** The request target in the request line. */
  readonly path: string;
  /** Headers in this order, including duplicates. Characters up to U+00FF are sent as one byte each. */
  readonly headers?: readonly Header[];
  /** The body, sent as UTF-8. With `Transfer-Encoding: chunked` it is sent in chunks of 1,000 bytes. */
  readonly body?: string | Uint8Array | undefined;
}

export interface RawAnswer {
  readonly status: number;
  /** Headers of the response in the order received. */
  readonly headers: readonly Header[];
  /** Body of the response without chunk framing. */
  readonly body: Buffer;
  /** Statuses of the interim responses (1xx) before the response. */
  readonly interim: readonly number[];
}

const CHUNK = 1_000;
const HEAD_END = '\r\n\r\n';

/** Renders a request. Adds only missing parts: Host, Connection: close, and Content-Length for a body. */
export function renderRequest({ method, path, headers = [], body }: RawRequest): Buffer {
  const bytes = Buffer.from(body ?? '');
  const isChunked = /(?:^|,)\s*chunked$/i.test(headerOf(headers, 'transfer-encoding') ?? '');
  const added: Header[] = [
    ['Host', 'plants.test'],
    ['Connection', 'close'],
  ];
  if (body !== undefined && !isChunked) added.push(['Content-Length', String(bytes.length)]);
  const all = [...added.filter(([name]) => headerOf(headers, name) === undefined), ...headers];
  const lines = all.map(([name, value]) => `${name}: ${value}\r\n`);
  const head = Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`, 'latin1');
  return Buffer.concat([head, isChunked ? chunked(bytes) : bytes]);
}

function chunked(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += CHUNK) {
    const chunk = bytes.subarray(at, at + CHUNK);
    parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'));
  }
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

/**
 * Sends bytes to the service at `url`. Resolves to the response after the service has closed the connection. Rejects
 * on a timeout, and when the response is malformed or its length is wrong. With `endsEarly` the client ends its
 * sending side after the bytes.
 */
export async function sendRaw(
  url: string,
  message: string | Uint8Array,
  { endsEarly = false }: { endsEarly?: boolean } = {},
): Promise<RawAnswer> {
  const bytes = typeof message === 'string' ? Buffer.from(message, 'latin1') : message;
  const received = await exchange(url, bytes, endsEarly);
  const taken = takeAnswer(received, Buffer.from(bytes.subarray(0, 5)).toString('latin1') === 'HEAD ');
  if (taken === undefined)
    throw new Error(`incomplete response: ${JSON.stringify(received.toString('latin1'))}`);
  if (taken.rest.length > 0) throw new Error(`${taken.rest.length} bytes follow the response`);
  return taken.answer;
}

/** Renders a request and sends it as `sendRaw` does. Resolves to the response. */
export function sendRequest(url: string, request: RawRequest): Promise<RawAnswer> {
  return sendRaw(url, renderRequest(request));
}

function exchange(url: string, bytes: Uint8Array, endsEarly: boolean): Promise<Buffer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const received: Buffer[] = [];
    const socket = connect(Number(port), hostname);
    let failure: Error | undefined;
    socket.setTimeout(PATIENCE_MS, () => {
      reject(new Error('the service did not close the connection'));
      socket.destroy();
    });
    socket.on('data', (data) => received.push(Buffer.from(data)));
    socket.on('error', (error) => {
      failure = error;
    });
    socket.on('close', () => {
      // A reset after the response is no failure: the service may close before it has read everything.
      if (failure !== undefined && received.length === 0) reject(failure);
      else resolve(Buffer.concat(received));
    });
    if (endsEarly) socket.end(bytes);
    else socket.write(bytes);
  });
}

/**
 * Parses the first final response in the bytes, with its interim responses. Returns the response and the
 * bytes after it, or undefined when it is incomplete. Throws when it is malformed.
 */
export function takeAnswer(
  bytes: Buffer,
  toHead: boolean,
): { readonly answer: RawAnswer; readonly rest: Buffer } | undefined {
  const interim: number[] = [];
  let rest = bytes;
  for (;;) {
    const head = takeHead(rest);
    if (head === undefined) return undefined;
    const { status, headers, after } = head;
    if (status >= 200) {
      const content = takeBody(status, headers, after, toHead);
      return content && { answer: { status, headers, body: content.body, interim }, rest: content.rest };
    }
    interim.push(status);
    rest = after;
  }
}

function takeHead(bytes: Buffer): { status: number; headers: Header[]; after: Buffer } | undefined {
  const end = bytes.indexOf(HEAD_END);
  if (end < 0) return undefined;
  const [first = '', ...lines] = bytes.subarray(0, end).toString('latin1').split('\r\n');
  const status = /^HTTP\/1\.1 ([1-5][0-9]{2}) [\x20-\x7e]*$/.exec(first)?.[1];
  if (status === undefined) throw new Error(`not a status line: ${first}`);
  return {
    status: Number(status),
    headers: lines.map(parseHeader),
    after: bytes.subarray(end + HEAD_END.length),
  };
}

function parseHeader(line: string): Header {
  const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*$/.exec(line) ?? [];
  if (name === undefined || value === undefined) throw new Error(`not a header: ${line}`);
  return [name, value];
}

type Content = { readonly body: Buffer; readonly rest: Buffer } | undefined;

/** Parses the body that follows the headers. The rules of RFC 9112 §6.3 determine its length. */
function takeBody(status: number, headers: readonly Header[], after: Buffer, toHead: boolean): Content {
  if (toHead || status === 204 || status === 304) return { body: Buffer.alloc(0), rest: after };
  if (headerOf(headers, 'transfer-encoding') === 'chunked') return takeChunks(after);
  const length = headerOf(headers, 'content-length') ?? '';
  if (!/^[0-9]+$/.test(length)) throw new Error('the response has no valid length');
  const end = Number(length);
  return after.length < end ? undefined : { body: after.subarray(0, end), rest: after.subarray(end) };
}

function takeChunks(bytes: Buffer): Content {
  const parts: Buffer[] = [];
  let rest = bytes;
  for (;;) {
    const lineEnd = rest.indexOf('\r\n');
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(rest.subarray(0, lineEnd).toString('latin1'), 16);
    const end = lineEnd + 2 + size;
    if (!(size >= 0)) throw new Error('a chunk has no size');
    if (rest.length < end + 2) return undefined;
    if (rest.subarray(end, end + 2).toString('latin1') !== '\r\n') throw new Error('a chunk has no end');
    if (size === 0) return { body: Buffer.concat(parts), rest: rest.subarray(end + 2) };
    parts.push(rest.subarray(lineEnd + 2, end));
    rest = rest.subarray(end + 2);
  }
}

/** Returns the value of the first header with this name. Upper and lower case are equal. */
export function headerOf(headers: readonly Header[], name: string): string | undefined {
  return headers.find(([one]) => one.toLowerCase() === name.toLowerCase())?.[1];
}
