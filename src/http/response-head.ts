import type { FastifyReply } from 'fastify';
import { headerCase } from './header-names.ts';
import { http } from './node-http.ts';

/** Matches a character that no header value may have (RFC 9110 §5.5). */
const INVALID = /[^\t\x20-\x7e\x80-\xff]/;

/** Headers of every response, on public and admin port. */
export const COMMON_HEADERS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' };

/** Headers that change how Node sends a response. */
const LEFT_TO_NODE = ['connection', 'transfer-encoding', 'trailer'];

/** Headers of every response of a listener, rendered once. */
export interface CommonHeaders {
  readonly fields: Readonly<Record<string, string>>;
  readonly lines: string;
  /**
   * Headers that change how Node sends a response, or that override a common header. If a response has one of
   * these headers, Node renders its status line and headers.
   */
  readonly leftToNode: ReadonlySet<string>;
  /** Returns true while responses must carry `Connection: close`. */
  readonly isClosing: () => boolean;
}

/** Renders the common headers of a listener. A response may override one of them. */
export function renderCommon(
  fields: Readonly<Record<string, string>>,
  isClosing = () => false,
): CommonHeaders {
  const lines = Object.entries(fields).map(([name, value]) => `${headerCase(name)}: ${value}\r\n`);
  const leftToNode = new Set([...LEFT_TO_NODE, ...Object.keys(fields)]);
  return { fields, lines: lines.join(''), leftToNode, isClosing };
}

interface Line {
  value: unknown;
  text: string;
}

/** Cache of the last rendered line of each header. Most headers have the same value in every response. */
const lines = new Map<string, Line>();
const statusLines = new Map<number, string>();
let dateSecond = 0;
let dateLine = '';

/**
 * Renders status line and headers as Node would, for a connection that stays open. Reuses the rendered line
 * of a header while its value stays the same. Returns undefined if the length is unknown, a header is in
 * `leftToNode`, or a value is not a valid string. Node then renders the head.
 */
export function renderHead(
  status: number,
  requestId: string,
  { lines: commonLines, leftToNode }: CommonHeaders,
  headers: object,
): string | undefined {
  let head = `${statusLineOf(status)}X-Request-Id: ${requestId}\r\n${commonLines}`;
  let hasLength = status === 204;
  for (const name in headers) {
    const line = leftToNode.has(name) ? undefined : lineOf(name, Reflect.get(headers, name));
    if (line === undefined) return undefined;
    if (name === 'content-length') hasLength = true;
    head += line;
  }
  return hasLength ? `${head}${dateHeader()}Connection: keep-alive\r\n\r\n` : undefined;
}

function lineOf(name: string, value: unknown): string | undefined {
  const known = lines.get(name);
  if (known !== undefined && known.value === value) return known.text;
  if (typeof value !== 'string' || INVALID.test(value)) return undefined;
  const text = `${headerCase(name)}: ${value}\r\n`;
  if (known === undefined) lines.set(name, { value, text });
  else {
    known.value = value;
    known.text = text;
  }
  return text;
}

/** Renders the status line of a response (RFC 9112 §4). */
export function statusLineOf(status: number): string {
  const known = statusLines.get(status);
  if (known !== undefined) return known;
  const line = `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'unknown'}\r\n`;
  statusLines.set(status, line);
  return line;
}

function dateHeader(): string {
  const second = Math.floor(Date.now() / 1_000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateLine = `Date: ${new Date(second * 1_000).toUTCString()}\r\n`;
  }
  return dateLine;
}

/**
 * Sets the Content-Type of a reply whose body is already JSON text. Also sets a serializer: without it,
 * Fastify would add a charset to the Content-Type. The JSON media type has no charset parameter (RFC 8259
 * §11).
 */
export function asJson(reply: FastifyReply, json: string): string {
  reply.header('content-type', 'application/json').serializer(identity);
  return json;
}

function identity(json: string): string {
  return json;
}
