import { PlantStoreError } from './plant-store-error.ts';
import { pause, pauseBefore } from './retry.ts';

/** A request, but for its token. */
interface Request {
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

/** Gives an access token, at once or later. When it fails, so does the call, with that as the cause. */
export type GiveToken = () => string | Promise<string>;

/** What requests are sent by. */
export interface SendOptions {
  /** An access token, or what gives one; it is asked before each try, and once more when the service refuses its token. */
  readonly token: string | GiveToken;
  /** Milliseconds that one try may take, its token and its whole answer included; 10,000 unless given. */
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

/** b64token of RFC 6750 §2.1. */
const ACCESS_TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/;

/** Why fetch has failed where it never had a connection to send on: Node says so by these codes, others by none. */
const UNSENT_CODES: readonly unknown[] = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];

/** Sends requests with a token, within a time, and again when that is safe, which it is for each operation of the service. */
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
    // Thrown, not returned: whether to ask again is for the function to know.
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
      const isTransient = failure.status === undefined || PASSING_STATUSES.includes(failure.status);
      if (!isTransient || left < 1 || wait === undefined) throw failure;
      left -= 1;
      await pause(wait, request.signal);
    }
  };
}

/** The token, unless the signal is aborted first: then rejects with its reason, whatever the function does. */
function tokenBefore(signal: AbortSignal, token: string | GiveToken): Promise<string> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason));
    const given = async (): Promise<string> => (typeof token === 'function' ? token() : token);
    given().then(resolve, reject);
  });
}

/** Throws TypeError for what is no access token, and does not repeat it: it may be a secret with something around it. */
function checked(token: unknown): string {
  if (typeof token === 'string' && ACCESS_TOKEN.test(token)) return token;
  throw new TypeError('the option token must be an access token, or a function that gives one');
}

/** What an answer other than success means. */
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

/** The value of a JSON text; undefined when it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// The platforms hide the reason that matters, such as ECONNREFUSED, one level down.
function innermost(error: unknown): unknown {
  return error instanceof Error && error.cause instanceof Error ? error.cause : error;
}

function codeOf(error: unknown): unknown {
  const inner = innermost(error);
  return inner instanceof Error && 'code' in inner ? inner.code : undefined;
}

// Where several addresses were tried, the error of all has a code and no message.
function reasonOf(error: unknown): string {
  const inner = innermost(error);
  return inner instanceof Error ? inner.message || String(codeOf(error)) : String(inner);
}
