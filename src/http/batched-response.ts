import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { http } from './node-http.ts';

interface Ended {
  readonly response: BatchedResponse;
  readonly send: () => void;
}

let ended: Ended[] = [];

/**
 * A response that is written at the end of the event-loop iteration, together with the others of that iteration. A client
 * that the first of them wakes finds the next ones there, where it would sleep and be woken for each.
 */
export class BatchedResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends http.ServerResponse<Request> {
  /** `performance.now()` when the request was dispatched. */
  startedAt = 0;

  /** Whether `end` was called, though the bytes may not have left. */
  isAnswered = false;

  /** Whether the client has closed its side before the response was sent. It may still read, but most do not. */
  isClientGone = false;

  /** Why the request cannot be received to its end: malformed, or late. */
  receiveError: unknown;

  /** Called when `receiveError` is set while the body is awaited. */
  onReceiveError: ((error: unknown) => void) | undefined;

  /** What the router made of it; undefined before, and once the response is closed. */
  routed: FastifyRequest | undefined;

  override end(...args: readonly unknown[]): this {
    this.isAnswered = true;
    if (ended.length === 0) setImmediate(endAll);
    ended.push({ response: this, send: () => Reflect.apply(super.end, this, args) });
    return this;
  }
}

/** The response behind a reply. */
export function responseOf({ raw }: FastifyReply): BatchedResponse {
  if (!(raw instanceof BatchedResponse)) throw new Error('the listener makes every response');
  return raw;
}

function endAll(): void {
  const all = ended;
  ended = [];
  for (const { response, send } of all) {
    try {
      send();
    } catch (error: unknown) {
      response.destroy(error instanceof Error ? error : undefined);
    }
  }
}
