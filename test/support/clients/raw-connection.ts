import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { PATIENCE_MS } from '../patience.ts';
import { type RawAnswer, takeAnswer } from './raw-http.ts';

/**
 * A raw connection to a service, over TLS for an https URL. It sends bytes unchanged and parses responses one by one.
 */
export interface Wire {
  /** Sends bytes, or a text as one byte per character. */
  send(bytes: string | Uint8Array): void;
  /** Ends the sending side of the connection. */
  end(): void;
  /**
   * Resolves to the next response, or to undefined after the service has closed the connection. Rejects on a timeout,
   * or when the bytes are not a response.
   */
  answer(options?: { readonly toHead?: boolean; readonly withinMs?: number }): Promise<RawAnswer | undefined>;
  /** Resolves to all further bytes once the service has closed the connection. Rejects on a timeout. */
  rest(withinMs?: number): Promise<Buffer>;
  /** Number of received bytes that are not part of a parsed response. */
  surplus(): number;
  destroy(): void;
}

/**
 * Number of short timers that run one after the other and together make a timeout. If the process pauses,
 * only one timer expires. So data that arrived during the pause is read before the timeout ends.
 */
const PARTS = 8;

/** Opens a connection to the service at `url`. Data is queued until the connection is open. */
export function openWire(url: string): Wire {
  const { protocol, hostname, port } = new URL(url);
  const address = { port: Number(port), host: hostname };
  const socket =
    protocol === 'https:'
      ? connectTls({ ...address, rejectUnauthorized: false }).setNoDelay()
      : connect({ ...address, noDelay: true });
  let received: Buffer = Buffer.alloc(0);
  let isClosed = false;
  let look = (): void => undefined;

  socket.on('data', (bytes: Buffer) => {
    received = received.length === 0 ? bytes : Buffer.concat([received, bytes]);
    look();
  });
  // Ignores errors: a service that closes before it has read everything may reset the connection after its
  // response.
  socket.on('error', () => undefined);
  socket.on('close', () => {
    isClosed = true;
    look();
  });

  function takeNext(toHead: boolean): { readonly found: RawAnswer | undefined } | undefined {
    const taken = takeAnswer(received, toHead);
    if (taken !== undefined) {
      received = taken.rest;
      return { found: taken.answer };
    }
    if (!isClosed) return undefined;
    if (received.length > 0)
      throw new Error(`the response is incomplete: ${JSON.stringify(received.toString('latin1'))}`);
    return { found: undefined };
  }

  /** Runs `find` after every event of the connection until it returns a result. Resolves to the result. */
  function wait<T>(find: () => { readonly found: T } | undefined, withinMs: number): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let parts = 0;
    const late = setInterval(() => {
      parts += 1;
      if (parts < PARTS) return;
      clearInterval(late);
      reject(new Error(`no data within ${withinMs} ms`));
    }, withinMs / PARTS);
    look = () => {
      try {
        const result = find();
        if (result === undefined) return;
        resolve(result.found);
      } catch (error: unknown) {
        reject(error);
      }
      clearInterval(late);
      look = () => undefined;
    };
    look();
    return promise;
  }

  return {
    send: (bytes) => void socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes),
    end: () => void socket.end(),
    answer: ({ toHead = false, withinMs = PATIENCE_MS } = {}) => wait(() => takeNext(toHead), withinMs),
    rest: (withinMs = PATIENCE_MS) => wait(() => (isClosed ? { found: received } : undefined), withinMs),
    surplus: () => received.length,
    destroy: () => void socket.destroy(),
  };
}
