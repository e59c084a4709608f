import {
  type Attempt,
  type CallOptions,
  type ClientOptions,
  checkedSignal,
  checkedToken,
  DEFAULTS,
  limitsOf,
} from './options.ts';
import { PlantStoreError } from './plant-store-error.ts';
import { type Answer, answerOf, errorOf } from './response.ts';
import { pause, pauseBefore, TRANSIENT_STATUSES, within } from './retry.ts';

/** A request without its token. */
interface Request {
  readonly operation: Attempt['operation'];
  readonly method: Attempt['method'];
  readonly url: URL;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Resolves to a success response. Rejects with PlantStoreError, or with the reason of the caller's signal. */
type Send = (request: Request) => Promise<Answer>;

/** The end of an attempt. */
interface Outcome {
  readonly answer?: Answer;
  /** A PlantStoreError, or the reason of the aborted signal; undefined after a success. */
  readonly failure: unknown;
  /** True if a retry may succeed. */
  readonly isTransient: boolean;
}

/** Matches the system calls of Node that look up a host and connect to it. */
const CONNECTING = /^(?:connect|getaddrinfo|query)/;

/** Matches error codes of Node, its fetch (undici) and Bun for a request that was not sent. */
const UNSENT_CODE =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|UND_ERR_CONNECT_TIMEOUT|UND_ERR_INVALID_ARG)$/;

/**
 * Matches error codes of Node and Bun for a TLS handshake that failed before sending: the certificate of the server is
 * invalid, or no version of TLS fits. Other alerts may follow the request in TLS 1.3.
 */
const FAILED_HANDSHAKE =
  /^(?:CERT_|UNABLE_TO_|(?:DEPTH_ZERO_)?SELF_SIGNED_CERT|ERR_TLS_CERT_|ERR_SSL_(?:WRONG_VERSION_NUMBER|TLSV1_ALERT_PROTOCOL_VERSION)$)/;

/** Matches error texts for a request that was not sent. "client error" is from hyper, Deno's HTTP library. */
const UNSENT_TEXT =
  /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|client error \(Connect\)|^bad port$|Requests to port \d+ are blocked/;

/**
 * Returns a function that checks the options of a call and returns its `Send`. `Send` adds the token, limits
 * the time of each attempt, and retries. Each operation of the service is safe to retry.
 */
export function createSender(options: ClientOptions): (options: CallOptions) => Send {
  const { token, fetch = globalThis.fetch, beforeAttempt, afterAttempt } = options;
  const clientLimits = limitsOf(options, DEFAULTS);
  const isFunction = typeof token === 'function';
  if (!isFunction) checkedToken(token, false);

  return (options) => {
    const { timeoutMs, retries, headers: common } = limitsOf(options, clientLimits);
    const signal = checkedSignal(options.signal);

    return async ({ operation, method, url, headers: own, body }) => {
      const target = `${method} ${url.origin}${url.pathname}`;
      let canRenew = isFunction;
      let retried = 0;
      let outcomeUnknown = false;

      async function attempt(withoutToken: Headers): Promise<Outcome> {
        let hasToken = false;
        let cause: unknown;
        let reason = `within ${timeoutMs} ms`;
        try {
          const answer = await within(timeoutMs, signal, async (end) => {
            const given = checkedToken(isFunction ? await token() : token, isFunction);
            end.throwIfAborted();
            hasToken = true;
            // Copies the headers: a hook may keep its object, and must not get the token.
            const headers = new Headers(withoutToken);
            headers.set('authorization', `Bearer ${given}`);
            const request = { method, headers, body: body ?? null, signal: end, redirect: 'manual' } as const;
            return answerOf(await fetch(url, request), target, given);
          });
          if (answer !== undefined) {
            // Treats a missing plant as deleted if the outcome of an earlier attempt is unknown: that attempt
            // may have deleted it.
            const isGone = operation === 'deletePlant' && outcomeUnknown;
            const failure = errorOf(answer, outcomeUnknown, isGone);
            return { answer, failure, isTransient: TRANSIENT_STATUSES.includes(answer.info.status) };
          }
        } catch (error: unknown) {
          if (signal?.aborted) return { failure: signal.reason, isTransient: false };
          cause = error;
          reason = `(${reasonOf(error)})`;
        }
        const failure = new PlantStoreError(
          `no ${hasToken ? 'answer from' : 'token for'} ${target} ${reason}`,
          { outcomeUnknown: outcomeUnknown || (hasToken && !isUnsent(cause)), cause },
        );
        return { failure, isTransient: hasToken };
      }

      /** Milliseconds until the next attempt; undefined if there is none. */
      function delayAfter({ failure, isTransient }: Outcome): number | undefined {
        if (!(failure instanceof PlantStoreError)) return undefined;
        outcomeUnknown = failure.outcomeUnknown;
        if (failure.status === 401 && canRenew) {
          canRenew = false;
          return 0;
        }
        if (!isTransient || retried === retries) return undefined;
        retried += 1;
        return pauseBefore(retried, failure.headers);
      }

      for (let number = 1; ; number += 1) {
        const headers = new Headers({ ...common, ...own });
        const facts = { operation, method, url: url.href, attempt: number };
        beforeAttempt?.({ ...facts, headers });
        const start = performance.now();
        const outcome = await attempt(headers);
        const { answer, failure } = outcome;
        const retryInMs = delayAfter(outcome);
        const ms = performance.now() - start;
        afterAttempt?.({ ...facts, ms, response: answer?.info, error: failure, retryInMs });
        if (answer !== undefined && failure === undefined) return answer;
        if (retryInMs === undefined) throw failure;
        await pause(retryInMs, signal);
      }
    };
  };
}

/**
 * Returns the message of an error of fetch. Uses its code if the message is empty, as that of an AggregateError is
 * if all addresses of a host fail, or if the message is a dump of OpenSSL.
 */
function reasonOf(error: unknown): string {
  const inner = innerOf(error);
  if (!(inner instanceof Error)) return String(inner);
  const code = textIn(inner, 'code');
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER') return `${code}; is it http://?`;
  return (!code.startsWith('ERR_SSL_') && inner.message.trim()) || code || inner.name;
}

/** Returns `error.cause`, if any, otherwise the error. Node and Deno put the actual error into `cause`. */
function innerOf(error: unknown): unknown {
  return error instanceof Error && error.cause instanceof Error ? error.cause : error;
}

/**
 * True if an error of fetch shows that nothing was sent. Browsers give no reason, so none of their errors
 * match.
 */
function isUnsent(error: unknown): boolean {
  const inner = innerOf(error);
  // An AggregateError has one error for each address of the host.
  const errors: readonly unknown[] = inner instanceof AggregateError ? inner.errors : [inner];
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
