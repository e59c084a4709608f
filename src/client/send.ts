import { PlantStoreError } from './plant-store-error.ts';
import { pause, pauseBefore } from './retry.ts';

/** A request without its token. */
interface Request {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal | undefined;
}

/** A complete response. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/** Returns an access token. When it fails, the call fails with that error as its cause. */
export type GiveToken = () => string | Promise<string>;

/** Options of every request. */
export interface SendOptions {
  /** An access token, or a function that returns one. It is called before each attempt, and again once after a 401. */
  readonly token: string | GiveToken;
  /** Timeout of one attempt in milliseconds, from the call for a token to the end of the response. Default: 10,000. */
  readonly timeoutMs?: number;
  /** Max number of retries after a transient error. Default: 4. */
  readonly retries?: number;
  readonly fetch: typeof fetch;
}

/** Resolves to a success response. Rejects with PlantStoreError, or with the reason of the caller's signal. */
export type Send = (request: Request) => Promise<Answer>;

const TIMEOUT_MS = 10_000;
const RETRIES = 4;

/** Transient: too many requests, a proxy without a running service, overload, shutdown. */
const TRANSIENT_STATUSES = [429, 502, 503, 504];

/** The code of a 503 after which the outcome of a write is unknown. */
const UNAVAILABLE = 50300;

/** b64token of RFC 6750 §2.1. */
const ACCESS_TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/;

/** Node's codes for errors before a connection exists, so that nothing was sent. Other platforms have no such codes. */
const UNSENT_CODES: readonly unknown[] = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

/** Sends requests with a token, a timeout and retries. Each operation of the service is safe to retry. */
export function createSend({ token, timeoutMs = TIMEOUT_MS, retries = RETRIES, fetch }: SendOptions): Send {
  if (typeof token !== 'function') checked(token);

  async function attempt(request: Request, unknownBefore: boolean): Promise<Answer | PlantStoreError> {
    const { method, url, body = null, signal } = request;
    const timeout = AbortSignal.timeout(timeoutMs);
    const end = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
    const failure = (missing: string, cause: unknown, outcomeUnknown: boolean): PlantStoreError => {
      signal?.throwIfAborted();
      const how = timeout.aborted ? `within ${timeoutMs} ms` : `(${reasonOf(cause)})`;
      const message = `${missing} ${method} ${url.origin}${url.pathname} ${how}`;
      return new PlantStoreError(message, { outcomeUnknown, cause });
    };
    // Throws instead of returning: a failed token function must not be retried.
    const given = await tokenBefore(end, token).catch((cause: unknown) => {
      throw failure('no token for', cause, unknownBefore);
    });
    const headers = new Headers({ ...request.headers, authorization: `Bearer ${checked(given)}` });
    try {
      const response = await fetch(url, { method, headers, body, signal: end });
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (cause: unknown) {
      const wasSent = !UNSENT_CODES.includes(codeOf(cause));
      return failure('no answer from', cause, unknownBefore || wasSent);
    }
  }

  return async function send(request) {
    let renewals = typeof token === 'function' ? 1 : 0;
    let outcomeUnknown = false;
    for (let left = retries; ; ) {
      request.signal?.throwIfAborted();
      const answer = await attempt(request, outcomeUnknown);
      if (!(answer instanceof PlantStoreError) && answer.status < 300) return answer;
      const failure: PlantStoreError =
        answer instanceof PlantStoreError ? answer : apiErrorOf(answer, outcomeUnknown);
      outcomeUnknown = failure.outcomeUnknown;
      if (failure.status === 401 && renewals > 0) {
        renewals -= 1;
        continue;
      }
      const wait = pauseBefore(
        retries - left,
        answer instanceof PlantStoreError ? undefined : answer.headers,
      );
      const isTransient = failure.status === undefined || TRANSIENT_STATUSES.includes(failure.status);
      if (!isTransient || left < 1 || wait === undefined) throw failure;
      left -= 1;
      await pause(wait, request.signal);
    }
  };
}

/** Resolves to the token. Rejects with the reason of the signal when that is aborted first. */
function tokenBefore(signal: AbortSignal, token: string | GiveToken): Promise<string> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
    const given = async (): Promise<string> => (typeof token === 'function' ? token() : token);
    given().then(resolve, reject);
  });
}

/** Throws TypeError for an invalid token. The message does not show it: it may contain a secret. */
function checked(token: unknown): string {
  if (typeof token === 'string' && ACCESS_TOKEN.test(token)) return token;
  throw new TypeError('the option token must be an access token, or a function that gives one');
}

/** The error for a response other than success. */
function apiErrorOf({ status, headers, text }: Answer, outcomeUnknown: boolean): PlantStoreError {
  const { error, message } = errorBodyOf(text);
  return new PlantStoreError(
    message ?? `the answer was ${status}, and not by a Plant Store: ${text.slice(0, 100)}`,
    {
      error,
      status,
      requestId: headers.get('x-request-id') ?? undefined,
      outcomeUnknown: outcomeUnknown || error === UNAVAILABLE || (error === undefined && status >= 500),
    },
  );
}

function errorBodyOf(text: string): { error?: number; message?: string } {
  const body = jsonOf(text);
  if (typeof body !== 'object' || body === null || !('error' in body) || !('message' in body)) return {};
  const { error, message } = body;
  return typeof error === 'number' && typeof message === 'string' ? { error, message } : {};
}

/** Parses JSON; undefined for invalid JSON. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// Platforms put the actual reason, such as ECONNREFUSED, into `cause`.
function innermost(error: unknown): unknown {
  return error instanceof Error && error.cause instanceof Error ? error.cause : error;
}

function codeOf(error: unknown): unknown {
  const inner = innermost(error);
  return inner instanceof Error && 'code' in inner ? inner.code : undefined;
}

// After attempts at several addresses, the error has a code and no message.
function reasonOf(error: unknown): string {
  const inner = innermost(error);
  return inner instanceof Error ? inner.message || String(codeOf(error)) : String(inner);
}
