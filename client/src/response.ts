import { ErrorCode } from './error-codes.ts';
import { PlantStoreError } from './plant-store-error.ts';

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
  /** The parsed body; undefined if it is not JSON. */
  readonly json: unknown;
  /** Where a redirect leads, without the token. */
  readonly location: string | undefined;
}

/** Error codes that a wrong base URL causes. */
const WRONG_URL: readonly unknown[] = [ErrorCode.noSuchRoute, ErrorCode.methodNotAllowed];

/** Statuses of redirects. In browsers, a redirect has the status 0 and no visible headers. */
const REDIRECTS = [0, 301, 302, 303, 307, 308];

/** Matches characters that could change how a terminal shows a message, and that JSON does not escape. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/**
 * Reads a response to its end. Removes the token from its text, and from the content of an error, since an echo of
 * the request contains it.
 */
export async function answerOf(response: Response, target: string, token: string): Promise<Answer> {
  const { status, headers } = response;
  const body = await response.text();
  const text = body.replaceAll(token, '[token]');
  const requestId = headers.get('x-request-id') ?? undefined;
  const info = { status, requestId, headers };
  const location = headers.get('location')?.replaceAll(token, '[token]');
  return { info, target, text, json: parsed(response.ok ? body : text), location };
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
  const { info, target, location } = answer;
  const { status } = info;
  if (status >= 200 && status < 300) return undefined;
  if (REDIRECTS.includes(status)) {
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
  const { info, target, text } = answer;
  const begin = JSON.stringify(text.slice(0, 100));
  const body = text ? `begins with ${begin}` : 'is empty';
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
