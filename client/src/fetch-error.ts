import { printable, redacted } from './safe-text.ts';

/** Matches the system calls of Node that look up a host and connect to it. */
const CONNECTING = /^(?:connect|getaddrinfo|query)/;

/** Matches error codes of Node, its fetch (undici) and Bun for a request that was not sent. */
const UNSENT_CODE =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|UND_ERR_CONNECT_TIMEOUT|UND_ERR_INVALID_ARG)$/;

/**
 * Matches error codes of Node and Bun for a TLS handshake that failed before sending: the certificate of the server is
 * invalid, or no version of TLS fits. Other alerts may follow the request in TLS 1.3. Bun's EPROTO says that the handshake
 * failed, but also follows invalid TLS records after the request, so it does not count.
 */
const FAILED_HANDSHAKE =
  /^(?:CERT_|UNABLE_TO_|(?:DEPTH_ZERO_)?SELF_SIGNED_CERT|ERR_TLS_CERT_|ERR_SSL_(?:WRONG_VERSION_NUMBER|TLSV1_ALERT_PROTOCOL_VERSION)$)/;

/**
 * Matches error texts for a request that was not sent. "client error" is from hyper, Deno's HTTP library. "Tunneling" (Node)
 * and "tunnel" (Bun) are about proxies.
 */
const UNSENT_TEXT =
  /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|client error \(Connect\)|^bad port$|Requests to port \d+ are blocked|^Requires net access|before secure TLS|HTTP Tunneling$|to open a tunnel/;

/** Fields of an error that have no bytes of the request or response, unlike `data` of undici's HTTPParserError. */
const COPIED = ['name', 'message', 'stack', 'code', 'errno', 'syscall'];

/** Max errors in a chain of causes that are read. */
const MAX_CAUSES = 4;

/**
 * Copies an error of fetch, its causes and the errors of an AggregateError. The copy has only the fields in COPIED,
 * without the token and control characters: an echo of the request contains the token and the plant.
 */
export function copyOf(error: unknown, token: string, left = MAX_CAUSES): unknown {
  if (typeof error === 'string') return safeLines(error, token);
  if (!isError(error) || left === 0) return undefined;
  const copy = new Error();
  const set = (field: string, value: unknown): void => {
    const enumerable = Object.prototype.propertyIsEnumerable.call(error, field);
    Object.defineProperty(copy, field, { value, enumerable, configurable: true, writable: true });
  };
  for (const field of COPIED) {
    const value: unknown = Reflect.get(error, field);
    if (typeof value === 'number') set(field, value);
    if (typeof value === 'string') set(field, safeLines(value, token));
  }
  if (error.cause !== undefined) set('cause', copyOf(error.cause, token, left - 1));
  if (Array.isArray(error.errors)) {
    set(
      'errors',
      error.errors.map((each) => copyOf(each, token, left - 1)),
    );
  }
  return copy;
}

/** An error, or an AggregateError, of any realm. */
interface AnyError {
  readonly message: string;
  readonly cause?: unknown;
  readonly errors?: unknown;
}

/** True for an Error of any realm. In Jest, errors of fetch have another realm, so `instanceof` fails. */
function isError(value: unknown): value is AnyError {
  return typeof Reflect.get(Object(value), 'message') === 'string';
}

/** Keeps line breaks, which a stack has. */
function safeLines(text: string, token: string): string {
  return redacted(text, token).split('\n').map(printable).join('\n');
}

/**
 * Returns the message of an error of fetch. Uses its code if the message is empty, as that of an AggregateError is
 * if all addresses of a host fail, or if the message is a dump of OpenSSL.
 */
export function reasonOf(error: unknown): string {
  const inner = innerOf(error);
  // An object without a prototype has no text.
  if (!isError(inner)) return Object(inner) === inner ? Object.prototype.toString.call(inner) : String(inner);
  const code = textIn(inner, 'code');
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER') return `${code}; is it http://?`;
  const message = code.startsWith('ERR_SSL_') ? '' : inner.message.trim();
  // Node's error for a 407 has an empty cause.
  return message || code || textIn(error, 'message').trim() || textIn(inner, 'name');
}

/** Returns the innermost cause of an error, or the error if it has none. Node and Deno put the actual error there. */
function innerOf(error: unknown, left = MAX_CAUSES): unknown {
  return left > 1 && isError(error) && isError(error.cause) ? innerOf(error.cause, left - 1) : error;
}

/**
 * True if an error of fetch shows that nothing was sent. Browsers give no reason, so none of their errors
 * match.
 */
export function isUnsent(error: unknown): boolean {
  const inner = innerOf(error);
  // An AggregateError has one error for each address of the host.
  const errors: readonly unknown[] = isError(inner) && Array.isArray(inner.errors) ? inner.errors : [inner];
  return errors.length > 0 && errors.every(precedesSending);
}

function precedesSending(error: unknown): boolean {
  const syscall = textIn(error, 'syscall');
  // If present, the system call decides: `read` may fail with EHOSTUNREACH, after the request was sent.
  if (syscall !== '') return CONNECTING.test(syscall);
  const code = textIn(error, 'code');
  return UNSENT_CODE.test(code) || FAILED_HANDSHAKE.test(code) || UNSENT_TEXT.test(textIn(error, 'message'));
}

function textIn(error: unknown, field: string): string {
  const value: unknown = Reflect.get(Object(error), field);
  return typeof value === 'string' ? value : '';
}
