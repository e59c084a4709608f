import { connect } from 'node:net';
import { type RawAnswer, takeAnswer } from './raw-http.ts';

/** A TCP connection to a service, on which bytes go out as they are and answers come in one by one. */
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
  /** Whether the service has closed the connection, or sent something nobody asked for. */
  isSpent(): boolean;
  destroy(): void;
}

const PATIENCE_MS = 10_000;

/** Opens a connection to the service at `url`. What goes out before it stands, waits. */
export function openWire(url: string): Wire {
  const { hostname, port } = new URL(url);
  const socket = connect({ port: Number(port), host: hostname, noDelay: true });
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

  function next(toHead: boolean): { readonly answer: RawAnswer | undefined } | undefined {
    const taken = takeAnswer(received, toHead);
    if (taken !== undefined) {
      received = taken.rest;
      return taken;
    }
    if (!isClosed) return undefined;
    if (received.length > 0)
      throw new Error(`the answer is cut: ${JSON.stringify(received.toString('latin1'))}`);
    return { answer: undefined };
  }

  function answer({ toHead = false, withinMs = PATIENCE_MS } = {}): Promise<RawAnswer | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<RawAnswer | undefined>();
    const late = setTimeout(() => reject(new Error(`nothing came within ${withinMs} ms`)), withinMs);
    look = () => {
      try {
        const found = next(toHead);
        if (found === undefined) return;
        resolve(found.answer);
      } catch (error: unknown) {
        reject(error);
      }
      clearTimeout(late);
      look = () => undefined;
    };
    look();
    return promise;
  }

  return {
    send: (bytes) => void socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes),
    end: () => void socket.end(),
    answer,
    isSpent: () => isClosed || received.length > 0,
    destroy: () => void socket.destroy(),
  };
}
