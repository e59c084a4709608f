import type { IncomingMessage } from 'node:http';
import { http } from './node-http.ts';

let ended: (() => void)[] = [];

/**
 * A response that leaves when the turn of the event loop is over, in a row with the others of that turn. A client, or a
 * proxy, that the first of them wakes finds the next ones there, where it would go to sleep and be woken for each.
 */
export class GatheredResponse<Request extends IncomingMessage> extends http.ServerResponse<Request> {
  /** Whether all of it is said, though it may not have left. */
  isAnswered = false;

  override end(...args: readonly unknown[]): this {
    this.isAnswered = true;
    if (ended.length === 0) setImmediate(endAll);
    ended.push(() => Reflect.apply(super.end, this, args));
    return this;
  }
}

function endAll(): void {
  const all = ended;
  ended = [];
  for (const end of all) end();
}
