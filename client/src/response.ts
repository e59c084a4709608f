import { ErrorCode } from './error-codes.ts';
import { PlantStoreError } from './plant-store-error.ts';
import { redacted, redactedBegin } from './safe-text.ts';

/** Status, request id and headers of a response. */
export interface ResponseInfo {
  readonly status: number;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  readonly headers: Headers;
}

/** The part of a response of `fetch` that the client reads. Any `Response` has it. */
export interface FetchResponse {
  readonly status: number;
  readonly headers: { forEach(callback: (value: string, name: string) => void): void };
  /** Read up to the max bytes if it is a web stream. */
  readonly body?: unknown;
  /** Called if `body` is a stream of another kind, as in node-fetch. */
  arrayBuffer?(): Promise<ArrayBuffer>;
  /** Called if there is no `body` or no `arrayBuffer`. Cannot show that a plant is not UTF-8. */
  text(): Promise<string>;
}

/** The facts of a request that the reader of its response needs: the URL for messages, and the limit of the body. */
export interface ExpectedResponse {
  /** Method and URL of the request, without its query. */
  readonly target: string;
  /** Max bytes of the body of a success, after decompression. */
  readonly maxBodyBytes: number;
  /** True if the option maxBodyBytes sets that limit. */
  readonly isPage: boolean;
}

/** A complete response. */
export interface ReceivedResponse {
  readonly expected: ExpectedResponse;
  readonly info: ResponseInfo;
  /** The token of the request, which texts from the response may repeat. */
  readonly token: string;
  readonly body: string;
  /** Max bytes, if the body exceeds them: `json` is undefined then. */
  readonly cutAt: number | undefined;
  /** The parsed body; undefined if it is not JSON. */
  readonly json: unknown;
}

/** Max bytes of the body of an error. */
export const SHORT_BODY_BYTES = 64 * 1024;

/** Max UTF-16 units of the message of the service in that of an error. */
export const MAX_MESSAGE_UNITS = 1_000;

/** Max UTF-16 units of the body of another program in the message of an error. */
const SHOWN_UNITS = 100;

/** Error codes that a wrong base URL causes. */
const WRONG_URL: readonly unknown[] = [ErrorCode.noSuchRoute, ErrorCode.methodNotAllowed];

/** Statuses of redirects. In browsers, a redirect has the status 0 and no visible headers. */
const REDIRECTS = [0, 301, 302, 303, 307, 308];

/**
 * Reads a response to its end, or to the max bytes of its body. Removes the token from its headers, since an echo of the
 * request contains it.
 */
export async function receive(
  response: FetchResponse,
  expected: ExpectedResponse,
  token: string,
): Promise<ReceivedResponse> {
  const { status } = response;
  const headers = new Headers();
  response.headers.forEach((value, name) => void headers.append(name, redacted(value, token)));
  const { body, isUtf8, cutAt } = await bodyOf(response, expected.maxBodyBytes);
  const requestId = headers.get('x-request-id') ?? undefined;
  const info = { status, requestId, headers };
  // A plant is exact or an error; the message of an error need not be.
  const isJson = cutAt === undefined && (isUtf8 || !isSuccess(status));
  return { expected, info, token, body, cutAt, json: isJson ? parsed(body) : undefined };
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

interface Body {
  /** Has U+FFFD for bytes that are not UTF-8. */
  readonly body: string;
  readonly isUtf8: boolean;
  /** Max bytes, if the body exceeds them. */
  readonly cutAt: number | undefined;
}

/** Reads a body to its end, or to its max bytes; the end of the attempt then closes the connection. */
async function bodyOf(response: FetchResponse, maxBodyBytes: number): Promise<Body> {
  const { status, body } = response;
  if (status === 204 || REDIRECTS.includes(status)) return { body: '', isUtf8: true, cutAt: undefined };
  const maxBytes = isSuccess(status) ? maxBodyBytes : SHORT_BODY_BYTES;
  if (!isWebStream(body)) {
    // Without a body, `arrayBuffer` may be there but not work, as in React Native.
    if (typeof body === 'object' && body !== null && response.arrayBuffer !== undefined) {
      const bytes = new Uint8Array(await response.arrayBuffer());
      return { ...decoded(bytes), cutAt: bytes.length > maxBytes ? maxBytes : undefined };
    }
    const text = await response.text();
    return { body: text, isUtf8: true, cutAt: text.length > maxBytes ? maxBytes : undefined };
  }
  // Browsers such as Safari 18 cannot iterate over a stream with for await.
  const reader = body.getReader();
  // One buffer, since an array of chunks of one byte would take hundreds of times their bytes.
  let bytes = new Uint8Array(0);
  let length = 0;
  while (length <= maxBytes) {
    const chunk = await reader.read();
    if (chunk.done) return { ...decoded(bytes.subarray(0, length)), cutAt: undefined };
    const part = chunk.value.subarray(0, maxBytes + 1 - length);
    const end = length + part.length;
    if (end > bytes.length) {
      const larger = new Uint8Array(Math.min(Math.max(end, 2 * length), maxBytes + 1));
      larger.set(bytes);
      bytes = larger;
    }
    bytes.set(part, length);
    length = end;
  }
  return { ...decoded(bytes), cutAt: maxBytes };
}

function isWebStream(body: unknown): body is ReadableStream<Uint8Array> {
  return typeof Reflect.get(Object(body), 'getReader') === 'function';
}

function decoded(bytes: Uint8Array): Omit<Body, 'cutAt'> {
  try {
    return { body: new TextDecoder('utf-8', { fatal: true }).decode(bytes), isUtf8: true };
  } catch {
    return { body: new TextDecoder().decode(bytes), isUtf8: false };
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the error for a response that is not the success of its operation. `problem` describes the fault if status and
 * body look right. `unknownBefore`: an earlier attempt may have been executed.
 */
export function errorOf(
  received: ReceivedResponse,
  unknownBefore: boolean,
  problem?: string,
): PlantStoreError {
  const { info, expected } = received;
  const { target } = expected;
  const { status, headers } = info;
  if (REDIRECTS.includes(status)) {
    const location = headers.get('location');
    const message = `${target} was redirected${location ? ` to ${location}` : ''}; fix the option url`;
    return failed(message, received, unknownBefore);
  }
  const error = serviceErrorIn(received);
  if (error === undefined) {
    return unexpected(received, unknownBefore || isSuccess(status) || status >= 500, problem);
  }
  const { code, message } = error;
  const hint = WRONG_URL.includes(code) ? ` (${target}; check the option url)` : '';
  return failed(
    redacted(message, received.token).slice(0, MAX_MESSAGE_UNITS) + hint,
    received,
    unknownBefore || code === ErrorCode.storeUnavailable,
    code,
  );
}

/** Returns the error that the service sent; undefined if it sent none. Gateways have errors of this form, with other codes. */
export function serviceErrorIn({
  info,
  json,
}: ReceivedResponse): { code: number; message: string } | undefined {
  const body: object = Object(json);
  const code: unknown = Reflect.get(body, 'error');
  const message: unknown = Reflect.get(body, 'message');
  return isCodeOf(info.status, code) && typeof message === 'string' ? { code, message } : undefined;
}

/** True for an error code of the service in a response with this status: status × 100 + n. */
function isCodeOf(status: number, code: unknown): code is number {
  return status >= 400 && Number.isInteger(code) && Math.floor(Number(code) / 100) === status;
}

/** Returns the error for a response that cannot come from a Plant Store. */
function unexpected(
  received: ReceivedResponse,
  outcomeUnknown: boolean,
  problem = statusAndBodyOf(received),
): PlantStoreError {
  const message = `the answer to ${received.expected.target} is not that of a Plant Store: ${problem}`;
  return failed(message, received, outcomeUnknown);
}

function statusAndBodyOf(received: ReceivedResponse): string {
  const { info, token, cutAt } = received;
  const begin = JSON.stringify(redactedBegin(received.body, token, SHOWN_UNITS));
  const size = cutAt === undefined ? '' : `exceeds ${cutAt} bytes and `;
  const body = received.body ? `${size}begins with ${begin}` : 'is empty';
  return `its status is ${info.status}, its body ${body}${hintOf(received)}`;
}

function hintOf({ info, expected, cutAt }: ReceivedResponse): string {
  // A gateway in front of the right service sends 5xx, so the URL may be right.
  if (info.status >= 500) return '';
  if (cutAt !== undefined && expected.isPage && isSuccess(info.status)) {
    return '; raise the option maxBodyBytes if the service has such large plants';
  }
  return '; is the option url right?';
}

function failed(
  message: string,
  { info }: ReceivedResponse,
  outcomeUnknown: boolean,
  code?: number,
): PlantStoreError {
  return new PlantStoreError(message, {
    ...info,
    status: info.status || undefined,
    outcomeUnknown,
    code,
  });
}
