import type { FetchResponse, ResponseInfo } from './response.ts';

/**
 * Returns an access token. If the function throws or rejects, the call rejects with a PlantStoreError whose
 * `cause` is that error.
 */
export type GiveToken = () => string | Promise<string>;

/** Names and values of headers: an object, Headers, or a Map. */
export type HeaderOptions =
  | Readonly<Record<string, string>>
  | Iterable<readonly [string, string]>
  // Before TypeScript 6, Headers are iterable only with the library dom.iterable.
  | Headers;

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call during any attempt or pause. The call then rejects with the signal's reason, and may have taken effect. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Timeout of one attempt in milliseconds: 1 to 2,147,483,647 (24 days). Includes the call of the token
   * function and the complete response. Default: that of the client.
   */
  readonly timeoutMs?: number | undefined;
  /** Max number of retries after a transient error: 0 to 2,147,483,647. Default: that of the client. */
  readonly retries?: number | undefined;
  /**
   * Headers of each request, in addition to those of the client, such as `traceparent`. Not those that the client or
   * fetch sets, such as `Authorization` and `Content-Length`.
   */
  readonly headers?: HeaderOptions | undefined;
}

/** A request as the option `fetch` gets it, with its URL. */
export interface FetchRequest {
  readonly method: Attempt['method'];
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Aborted when the attempt ends. */
  readonly signal: AbortSignal;
  readonly redirect: 'manual';
}

/** Sends a request, as the function of the platform, or of a library with a similar one. */
export type Fetch = (url: URL, request: FetchRequest) => Promise<FetchResponse>;

/** The address of the service, the token, and defaults for all calls. */
export interface ClientOptions {
  /**
   * The address of the service with its base path, such as `https://plants.example/v1`. Has no query, fragment, user or
   * password; a function as the option `fetch` can add them to each request.
   */
  readonly url: string | URL;
  /**
   * An access token, or a function that returns one. The client calls the function at the start of each
   * attempt. After a 401, a client with a token function makes one extra attempt.
   */
  readonly token: string | GiveToken;
  /** As in CallOptions. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /** As in CallOptions. Default: 4. */
  readonly retries?: number | undefined;
  /** Headers of every request. */
  readonly headers?: HeaderOptions | undefined;
  /**
   * Max bytes of the body of a page of a list, after decompression: 1 to 2,147,483,647. Default: 16,777,216. A page of
   * the service has up to 8 MiB and one plant, so it can exceed the default if the service accepts plants of megabytes.
   */
  readonly maxBodyBytes?: number | undefined;
  /** Function that sends the requests, such as that of another library. Default: the `globalThis.fetch` of the moment. */
  readonly fetch?: Fetch | undefined;
  /** Called before each attempt. An error that it throws ends the call. */
  readonly beforeAttempt?: ((attempt: AttemptStart) => void) | undefined;
  /** Called after each attempt. An error that it throws ends the call. */
  readonly afterAttempt?: ((attempt: AttemptEnd) => void) | undefined;
}

/** An attempt: one request of a call. */
export interface Attempt {
  readonly operation: 'createPlant' | 'listPlants' | 'deletePlant';
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  /** 1 for the first attempt of a request, 2 for its first retry. */
  readonly attempt: number;
}

export interface AttemptStart extends Attempt {
  /** The headers of the request without the token. `beforeAttempt` may add those that the option `headers` takes. */
  readonly headers: Headers;
}

export interface AttemptEnd extends Attempt {
  /** Duration of the attempt in milliseconds, including the wait for the token. */
  readonly ms: number;
  /** Undefined if the attempt got no response. */
  readonly response: ResponseInfo | undefined;
  /** A PlantStoreError, or the reason of the aborted signal; undefined after a success. */
  readonly error: unknown;
  /** Milliseconds until the next attempt. Undefined if this was the last one. */
  readonly retryInMs: number | undefined;
}

/** Options of a call, with the default for each missing option. */
interface Limits {
  readonly timeoutMs: number;
  readonly retries: number;
  readonly headers: Readonly<Record<string, string>>;
}

export const DEFAULTS: Limits = { timeoutMs: 10_000, retries: 4, headers: {} };

/** Bytes of a page of a list: the 8 MiB at which the service ends one, and a plant of as much. */
export const DEFAULT_MAX_BODY_BYTES = 16 * 2 ** 20;

/** Plants in a page of a list. */
export const DEFAULT_PAGE_SIZE = 1_000;

/** Max value of integer options. Equals the max delay of setTimeout and the max page size of the API. */
const INT32_MAX = 2 ** 31 - 1;

/** Visible ASCII. */
const ACCESS_TOKEN = /^[!-~]+$/;

/** Matches the names that the client sets itself, or fetch: with a wrong length or framing, the service waits for more. */
const SET_BY_CLIENT =
  /^(?:authorization|connection|content-length|content-type|expect|host|idempotency-key|keep-alive|te|trailer|transfer-encoding|upgrade)$/;

/** Matches a valid header name (RFC 9110 §5.6.2). */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/;

/** Matches a valid header value (RFC 9110 §5.5). Line breaks are invalid. */
const HEADER_VALUE = /^[\t -~\x80-\xff]*$/;

/** Returns the URL of the plant collection for a base URL. Throws TypeError for an invalid base URL. */
export function collectionAt(url: string | URL): URL {
  // Accepts only http and https. The URL parser takes `localhost:` in `localhost:8080` as the scheme. The
  // error message omits the URL, since a URL may contain a password.
  const { origin, pathname, search, hash, username, password } = parsed(url);
  if (!/^http/.test(origin)) throw new TypeError('the option url must be an http:// or https:// address');
  if (search || hash || username || password) {
    throw new TypeError(
      'the option url must have no query, fragment, user or password; the option fetch can add them',
    );
  }
  // Appends text to the origin instead of resolving a relative URL. A path such as `//host`, resolved as a
  // relative URL, would replace the host. The new host would get the token.
  return new URL(`${origin}${pathname.replace(/\/+$/, '')}/plants`);
}

/** Returns `a:`, whose origin is "null", for an invalid URL. Not every platform with `fetch` has `URL.canParse`. */
function parsed(url: string | URL): URL {
  try {
    return new URL(url);
  } catch {
    return new URL('a:');
  }
}

/** Throws TypeError for an invalid token. The message does not show it: it may contain a secret. */
export function checkedToken(token: unknown, isReturned: boolean): string {
  if (fits(token, ACCESS_TOKEN)) return token;
  const rule = 'must be a text of visible ASCII without spaces, line breaks or `Bearer`';
  if (!isReturned) throw new TypeError(`the option token ${rule}, or a function`);
  const returned = typeof token === 'string' ? 'an invalid text' : typeof token;
  throw new TypeError(`the token function returned ${returned}; a token ${rule}`);
}

/** Throws TypeError for anything but an AbortSignal, such as its controller. Accepts null, as fetch does. */
export function checkedSignal(signal: AbortSignal | null | undefined): AbortSignal | undefined {
  if (signal === null || signal === undefined) return undefined;
  if (typeof signal.throwIfAborted === 'function') return signal;
  throw new TypeError('the option signal must be an AbortSignal');
}

/** Throws TypeError for an option that is present and no function. */
export function checkFunctions(options: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && typeof value !== 'function') {
      throw new TypeError(`the option ${name} must be a function`);
    }
  }
}

/** Throws TypeError for anything but a text or undefined. */
export function checkedCursor(cursor: string | undefined): string | undefined {
  if (cursor === undefined || typeof cursor === 'string') return cursor;
  throw new TypeError('the option cursor must be the cursor of a page, or undefined');
}

/** Throws TypeError for a key that the service would reject. */
export function checkedKey(key: unknown): string {
  if (fits(key, /^[!-~]{1,255}$/)) return key;
  throw new TypeError('the option idempotencyKey must be 1 to 255 visible ASCII characters');
}

function fits(value: unknown, pattern: RegExp): value is string {
  return typeof value === 'string' && pattern.test(value);
}

/** Throws RangeError for anything but an integer from `min` to 2^31 - 1. */
export function checkedInteger(name: string, value: number, min: number): number {
  if (Number.isInteger(value) && value >= min && value <= INT32_MAX) return value;
  throw new RangeError(`the option ${name} must be an integer from ${min} to ${INT32_MAX}, not ${value}`);
}

/** Checks options. Throws RangeError or TypeError for invalid ones. */
export function limitsOf(options: Omit<CallOptions, 'signal'>, defaults: Limits): Limits {
  const { timeoutMs = defaults.timeoutMs, retries = defaults.retries, headers = {} } = options;
  return {
    timeoutMs: checkedInteger('timeoutMs', timeoutMs, 1),
    retries: checkedInteger('retries', retries, 0),
    headers: { ...defaults.headers, ...checkedHeaders(headers) },
  };
}

/**
 * Throws TypeError if `beforeAttempt` changed or removed a header that the client sets, `own`, or set one that fetch sets.
 * Ignores `authorization`, which the token replaces.
 */
export function rejectSetByClient(headers: Headers, own: Readonly<Record<string, string>> = {}): void {
  const found: Readonly<Record<string, string>> = Object.fromEntries(headers);
  for (const name of Object.keys({ ...found, ...own })) {
    if (SET_BY_CLIENT.test(name) && found[name] !== own[name] && name !== 'authorization')
      throw new TypeError(`beforeAttempt cannot set the header ${name}: the client or fetch sets it`);
  }
}

/** Returns headers with lower-case names. Throws TypeError for invalid ones. The message does not show a value. */
function checkedHeaders(headers: HeaderOptions): Record<string, string> {
  const checked: Record<string, string> = {};
  for (const [name, value] of Symbol.iterator in headers ? headers : Object.entries(headers)) {
    const key = name.toLowerCase();
    if (SET_BY_CLIENT.test(key) || !fits(key, HEADER_NAME) || !fits(value, HEADER_VALUE)) {
      throw new TypeError(
        `the option headers cannot have ${JSON.stringify(name)}: invalid, or set by the client`,
      );
    }
    checked[key] = value;
  }
  return checked;
}
