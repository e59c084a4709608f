import { ErrorCode } from './error-codes.ts';
import { PlantStoreError } from './plant-store-error.ts';
import { redacted } from './redacted.ts';

/** Status, request id and headers of a response. */
export interface ResponseInfo {
  readonly status: number;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  readonly headers: Headers;
}

/** A complete response. */
export interface Answer {
  readonly info: ResponseInfo;
  /** Method and URL of the request, without its query. */
  readonly target: string;
  readonly text: string;
  /** True if the body exceeds MAX_BODY_BYTES: `text` has its beginning, and `json` is undefined. */
  readonly isCut: boolean;
  /** The parsed body; undefined if it is not JSON. */
  readonly json: unknown;
}

/**
 * Max bytes of a body after decompression. Exceeds the largest page: 8 MiB and one plant, which has 192 MiB if it was
 * imported as 32 MiB of control characters, six bytes each in JSON.
 */
export const MAX_BODY_BYTES = 256 * 2 ** 20;

/** Error codes that a wrong base URL causes. */
const WRONG_URL: readonly unknown[] = [ErrorCode.noSuchRoute, ErrorCode.methodNotAllowed];

/** Statuses of redirects. In browsers, a redirect has the status 0 and no visible headers. */
const REDIRECTS = [0, 301, 302, 303, 307, 308];

/** Matches characters that could change how a terminal shows a message, and that JSON does not escape. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/**
 * Reads a response to its end. Removes the token from its headers, its text, and the content of an error, since an echo
 * of the request contains it.
 */
export async function answerOf(response: Response, target: string, token: string): Promise<Answer> {
  const { status } = response;
  const headers = new Headers();
  response.headers.forEach((value, name) => void headers.append(name, redacted(value, token)));
  const { body, isCut } = await bodyOf(response);
  const text = redacted(body, token);
  const requestId = headers.get('x-request-id') ?? undefined;
  const info = { status, requestId, headers };
  const json = isCut ? undefined : parsed(response.ok ? body : text);
  return { info, target, text, isCut, json };
}

/** Reads a body to its end, or to MAX_BODY_BYTES; the end of the attempt then closes the connection. */
async function bodyOf(response: Response): Promise<{ body: string; isCut: boolean }> {
  // Browsers such as Safari 18 cannot iterate over a stream with for await.
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let body = '';
  let left = MAX_BODY_BYTES;
  for (;;) {
    const chunk = await reader?.read();
    if (chunk === undefined || chunk.done) return { body: body + decoder.decode(), isCut: false };
    left -= chunk.value.byteLength;
    if (left < 0) return { body, isCut: true };
    body += decoder.decode(chunk.value, { stream: true });
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
 * Returns the error for a response, or undefined for a success. If `isGone` is true, the error `noSuchPlant`
 * counts as a success.
 */
export function errorOf(
  answer: Answer,
  unknownBefore: boolean,
  isGone: boolean,
): PlantStoreError | undefined {
  const { info, target } = answer;
  const { status, headers } = info;
  if (status >= 200 && status < 300) return undefined;
  if (REDIRECTS.includes(status)) {
    const location = headers.get('location');
    const message = `${target} was redirected${location ? ` to ${location}` : ''}; fix the option url`;
    return failed(message, answer, unknownBefore);
  }
  const body: object = Object(answer.json);
  const code: unknown = Reflect.get(body, 'error');
  const message: unknown = Reflect.get(body, 'message');
  // Gateways have errors of this form too, with other codes.
  if (!isCodeOf(status, code) || typeof message !== 'string') {
    return unexpected(answer, unknownBefore || status >= 500);
  }
  if (isGone && code === ErrorCode.noSuchPlant) return undefined;
  const hint = WRONG_URL.includes(code) ? ` (${target}; check the option url)` : '';
  return failed(message + hint, answer, unknownBefore || code === ErrorCode.storeUnavailable, code);
}

/** True for an error code of the service in a response with this status: status × 100 + n. */
function isCodeOf(status: number, code: unknown): code is number {
  return status >= 400 && Number.isInteger(code) && Math.floor(Number(code) / 100) === status;
}

/** Returns the error for a response that cannot come from a Plant Store. */
export function unexpected(answer: Answer, outcomeUnknown = true): PlantStoreError {
  const { info, target, text, isCut } = answer;
  const begin = JSON.stringify(text.slice(0, 100));
  const size = isCut ? `exceeds ${MAX_BODY_BYTES / 2 ** 20} MiB and ` : '';
  const body = text ? `${size}begins with ${begin}` : 'is empty';
  // A gateway in front of the right service answers with 5xx, so those do not question the URL.
  const hint = info.status < 500 ? '; is the option url right?' : '';
  return failed(
    `the answer to ${target} is not that of a Plant Store: its status is ${info.status}, its body ${body}${hint}`,
    answer,
    outcomeUnknown,
  );
}

function failed(message: string, { info }: Answer, outcomeUnknown: boolean, code?: number): PlantStoreError {
  return new PlantStoreError(message.replace(UNPRINTABLE, '\ufffd'), {
    ...info,
    status: info.status || undefined,
    outcomeUnknown,
    code,
  });
}
