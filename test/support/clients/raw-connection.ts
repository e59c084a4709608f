import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { type RawAnswer, takeAnswer } from './raw-http.ts';

/** A connection to a service, over TLS where its URL is https, on which bytes go out as they are and answers come in one by one. */
export interface Wire {
  /** A text goes out as one byte a character. */
  send(bytes: string | Uint8Array): void;
  /** Says that nothing more will be sent. */
  end(): void;
  /**
   * Resolves to the next answer, or to undefined once the service has closed the connection. Rejects when neither comes
   * in time, or when what comes is no answer.
   */
  answer(options?: { readonly toHead?: boolean; readonly withinMs?: number }): Promise<RawAnswer | undefined>;
  /** Resolves to all that comes until the service closes the connection. Rejects when it does not in time. */
  rest(withinMs?: number): Promise<Buffer>;
  /** Bytes that came and were not taken for an answer yet. */
  surplus(): number;
  destroy(): void;
}

const PATIENCE_MS = 10_000;

/** A wait is made of so many, so that a process that stands still misses but one of them, and then reads what came. */
const PARTS = 8;

/** Opens a connection to the service at `url`. What goes out before it stands, waits. */
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
  // A service that closes before it has read all may reset the connection behind its answer.
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
      throw new Error(`the answer is cut: ${JSON.stringify(received.toString('latin1'))}`);
    return { found: undefined };
  }

  /** Resolves to what `find` finds, looking again whenever something happens. */
  function wait<T>(find: () => { readonly found: T } | undefined, withinMs: number): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let parts = 0;
    const late = setInterval(() => {
      parts += 1;
      if (parts < PARTS) return;
      clearInterval(late);
      reject(new Error(`nothing came within ${withinMs} ms`));
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
