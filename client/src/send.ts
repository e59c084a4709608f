import { copyOf, isUnsent, reasonOf } from './fetch-error.ts';
import {
  type Attempt,
  type CallOptions,
  type ClientOptions,
  checkedSignal,
  checkedToken,
  checkFunctions,
  DEFAULTS,
  type Fetch,
  limitsOf,
  rejectSetByClient,
} from './options.ts';
import { PlantStoreError } from './plant-store-error.ts';
import { errorOf, type ReceivedResponse, receive } from './response.ts';
import { pause, pauseBefore, TRANSIENT_STATUSES, within } from './retry.ts';
import { redacted } from './safe-text.ts';

/** A request without its token, whose success is a `T`. */
interface Request<T extends object> {
  readonly operation: Attempt['operation'];
  readonly method: Attempt['method'];
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Max bytes of the body of a success. */
  readonly maxBodyBytes: number;
  /**
   * Returns the success in a response; a text that describes the fault; or undefined if status or body are unexpected.
   * `unknownBefore` is true if an earlier attempt may have been executed.
   */
  readonly read: (received: ReceivedResponse, unknownBefore: boolean) => T | string | undefined;
}

/** Resolves to a success. Rejects with PlantStoreError, or with the reason of the caller's signal. */
type Send = <T extends object>(request: Request<T>) => Promise<T>;

/** The end of an attempt. */
interface Outcome<T> {
  readonly received?: ReceivedResponse;
  readonly success?: T | undefined;
  /** A PlantStoreError, or the reason of the aborted signal; undefined after a success. */
  readonly failure: unknown;
  /** True if a retry may succeed. */
  readonly isTransient: boolean;
}

/**
 * Returns a function that checks the options of a call and returns its `Send`. `Send` adds the token, limits
 * the time of each attempt, and retries.
 */
export function createSender(options: ClientOptions): (options: CallOptions) => Send {
  const { token, fetch, beforeAttempt, afterAttempt } = options;
  checkFunctions({ fetch, beforeAttempt, afterAttempt });
  const clientLimits = limitsOf(options, DEFAULTS);
  const isFunction = typeof token === 'function';
  if (!isFunction) checkedToken(token, false);

  return (options) => {
    const { timeoutMs, retries, headers: common } = limitsOf(options, clientLimits);
    const signal = checkedSignal(options.signal);

    return async <T extends object>({
      operation,
      method,
      url,
      headers: own,
      body,
      maxBodyBytes,
      read,
    }: Request<T>) => {
      const target = `${method} ${url.origin}${url.pathname}`;
      const expected = { target, maxBodyBytes, isPage: operation === 'listPlants' };
      let canRenew = isFunction;
      let retried = 0;
      let outcomeUnknown = false;

      async function attempt(fetchNow: Fetch, withoutToken: Headers): Promise<Outcome<T>> {
        let given = '';
        let thrown: unknown;
        let reason = `within ${timeoutMs} ms; raise timeoutMs`;
        try {
          const received = await within(timeoutMs, signal, async (end) => {
            const current = checkedToken(isFunction ? await token() : token, isFunction);
            end.throwIfAborted();
            given = current;
            if (operation === 'listPlants') reason += ' or lower pageSize';
            // Copies the headers: a hook may keep its object, and must not get the token.
            const headers = { ...Object.fromEntries(withoutToken), authorization: `Bearer ${given}` };
            const request = { method, headers, body: body ?? null, signal: end, redirect: 'manual' } as const;
            // Copies the URL: a fetch of the user may change its object.
            return receive(await fetchNow(new URL(url), request), expected, given);
          });
          if (received !== undefined) {
            const result = read(received, outcomeUnknown);
            if (typeof result === 'object') {
              return { received, success: result, failure: undefined, isTransient: false };
            }
            const isTransient = TRANSIENT_STATUSES.includes(received.info.status);
            return { received, failure: errorOf(received, outcomeUnknown, result), isTransient };
          }
        } catch (error: unknown) {
          if (signal?.aborted) return { failure: signal.reason, isTransient: false };
          thrown = error;
          reason = `(${redacted(reasonOf(error), given)})`;
        }
        const hasToken = given !== '';
        const failure = new PlantStoreError(
          `no ${hasToken ? 'answer from' : 'token for'} ${target} ${reason}`,
          {
            outcomeUnknown: outcomeUnknown || (hasToken && !isUnsent(thrown)),
            cause: hasToken ? copyOf(thrown, given) : thrown,
          },
        );
        return { failure, isTransient: hasToken };
      }

      /** Milliseconds until the next attempt; undefined if there is none. */
      function delayAfter({ received, isTransient }: Outcome<T>): number | undefined {
        if (received?.info.status === 401 && canRenew) {
          canRenew = false;
          return 0;
        }
        if (!isTransient || retried === retries) return undefined;
        retried += 1;
        return pauseBefore(retried, received?.info.headers);
      }

      for (let number = 1; ; number += 1) {
        signal?.throwIfAborted();
        // Reads globalThis.fetch late: tests and instrumentation may replace it after createClient.
        const fetchNow = fetch ?? globalThis.fetch;
        if (typeof fetchNow !== 'function')
          throw new TypeError('this platform has no fetch; give the option fetch');
        const headers = new Headers({ ...common, ...own });
        const facts = { operation, method, url: url.href, attempt: number };
        beforeAttempt?.({ ...facts, headers });
        rejectSetByClient(headers, own);
        const start = performance.now();
        const outcome = await attempt(fetchNow, headers);
        const { received, success, failure } = outcome;
        if (failure instanceof PlantStoreError) outcomeUnknown = failure.outcomeUnknown;
        const retryInMs = delayAfter(outcome);
        const ms = performance.now() - start;
        afterAttempt?.({ ...facts, ms, response: received?.info, error: failure, retryInMs });
        if (success !== undefined) return success;
        if (retryInMs === undefined) throw failure;
        await pause(retryInMs, signal);
      }
    };
  };
}
