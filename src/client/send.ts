import { PlantStoreError } from './plant-store-error.ts';
import { pause, pauseBefore } from './retry.ts';

export interface Request {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal | undefined;
}

/** An answer that came whole. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

export type GiveToken = () => string | Promise<string>;

export interface SendOptions {
  /** An access token, or what gives one; it is asked before each try, and once more when the service refuses its token. */
  readonly token: string | GiveToken;
  /** Milliseconds that one try may take, its whole answer included; 10,000 unless given. */
  readonly timeoutMs?: number;
  /** How often a call is tried again when it may succeed then; 4 unless given. */
  readonly retries?: number;
  readonly fetch: typeof fetch;
}

/** Resolves to an answer of success; rejects with PlantStoreError, or with the reason of the caller's signal. */
export type Send = (request: Request) => Promise<Answer>;

const TIMEOUT_MS = 10_000;
const RETRIES = 4;

/** What may be over at the next try: too many requests, a proxy without a service behind it, an overload or a stop. */
const PASSING_STATUSES = [429, 502, 503, 504];

/** The code of a 503 that tells nothing of whether a write was carried out. */
const UNAVAILABLE = 50300;

/** Sends requests with a token, within a time, and again when that is safe, which it is for each operation of the service. */
export function createSend({ token, timeoutMs = TIMEOUT_MS, retries = RETRIES, fetch }: SendOptions): Send {
  async function attempt(request: Request): Promise<Answer | PlantStoreError> {
    const { method, url, headers = {}, body = null, signal } = request;
    const authorization = `Bearer ${typeof token === 'function' ? await token() : token}`;
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await fetch(url, {
        method,
        headers: { ...headers, authorization },
        body,
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      });
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch (cause: unknown) {
      signal?.throwIfAborted();
      return noAnswer(request, timeout.aborted ? `within ${timeoutMs} ms` : `(${reasonOf(cause)})`, cause);
    }
  }

  return async function send(request) {
    let renewals = typeof token === 'function' ? 1 : 0;
    let outcomeUnknown = false;
    for (let left = retries; ; ) {
      request.signal?.throwIfAborted();
      const answer = await attempt(request);
      if (!(answer instanceof PlantStoreError) && answer.status < 300) return answer;
      const failure: PlantStoreError =
        answer instanceof PlantStoreError ? answer : refusalOf(answer, outcomeUnknown);
      outcomeUnknown ||= failure.outcomeUnknown;
      if (failure.status === 401 && renewals > 0) {
        renewals -= 1;
        continue;
      }
      const wait = pauseBefore(
        retries - left,
        answer instanceof PlantStoreError ? undefined : answer.headers,
      );
      const isPassing = failure.status === undefined || PASSING_STATUSES.includes(failure.status);
      if (!isPassing || left === 0 || wait === undefined) throw failure;
      left -= 1;
      await pause(wait, request.signal);
    }
  };
}

function noAnswer({ method, url }: Request, how: string, cause: unknown): PlantStoreError {
  return new PlantStoreError(`no answer from ${method} ${url.origin}${url.pathname} ${how}`, {
    outcomeUnknown: true,
    cause,
  });
}

/** What an answer other than success means. */
function refusalOf({ status, headers, text }: Answer, outcomeUnknown: boolean): PlantStoreError {
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

/** The value of a JSON text; undefined when it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// The platforms hide the reason that matters, such as ECONNREFUSED, one level down.
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message : error.message;
}
