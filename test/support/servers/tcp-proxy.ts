import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { listenOnFreePort } from './free-port.ts';

/** A network that can fail, between a client and a server on this machine. */
interface TcpProxy {
  readonly port: number;
  /** From now on nothing passes in either direction, and nobody is told: connections stay open. */
  stall(): void;
  /** From now on all that the server sends comes so many milliseconds later. Resolves when that contains a text. */
  delay(ms: number, text: string): Promise<void>;
  /** What was held back is lost with its connections; new ones pass again. */
  heal(): void;
  /** Lets the accident happen to the next bytes on their way to the server that contain a text; resolves when it did. */
  expect(text: RegExp, accident: Accident): Promise<void>;
}

/** The connection is cut before the bytes arrive, or after they were answered and before the answer arrives; or all stalls. */
type Accident = 'cut before' | 'cut after' | 'stall';

interface Expected {
  readonly text: RegExp;
  readonly accident: Accident;
  readonly done: PromiseWithResolvers<void>;
}

/**
 * Starts a proxy to a port of this machine; it stops after the test. `onSent` gets all that goes to the server, and a
 * socket that stands for the connection.
 */
export async function startTcpProxy(
  t: Pick<TestContext, 'after'>,
  target: number,
  onSent: (bytes: Buffer, connection: Socket) => void = () => undefined,
): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let isStalled = false;
  let delayed = { ms: 0, text: '', done: Promise.withResolvers<void>() };
  let expected: Expected | undefined;

  const listener = createServer((client) => {
    const server = connect(target, '127.0.0.1');
    const both = [client, server];
    const end = (): void => {
      for (const socket of both) socket.destroy();
    };
    let atAnswer: Expected | undefined;
    for (const socket of both) {
      sockets.add(socket);
      // What ended with an error closes too, and of that nobody is told either while all stalls.
      socket
        .on('error', () => undefined)
        .on('close', () => {
          sockets.delete(socket);
          if (!isStalled) end();
        });
    }
    client.on('data', (bytes) => {
      onSent(Buffer.from(bytes), client);
      const due = expected?.text.test(bytes.toString('latin1')) ? expected : undefined;
      if (due !== undefined) expected = undefined;
      if (due?.accident === 'cut before') end();
      if (due?.accident === 'stall') isStalled = true;
      if (due?.accident === 'cut after') atAnswer = due;
      else due?.done.resolve();
      if (!isStalled && server.writable) server.write(bytes);
    });
    server.on('data', (bytes) => {
      if (atAnswer !== undefined) {
        end();
        atAnswer.done.resolve();
      } else if (delayed.ms > 0) {
        if (bytes.includes(delayed.text)) delayed.done.resolve();
        setTimeout(() => client.write(bytes), delayed.ms);
      } else if (!isStalled && client.writable) {
        client.write(bytes);
      }
    });
  });
  const port = await listenOnFreePort(listener);

  function destroyAll(): void {
    for (const socket of sockets) socket.destroy();
  }

  t.after(async () => {
    const closed = once(listener, 'close');
    listener.close();
    destroyAll();
    await closed;
  });

  return {
    port,
    stall: () => {
      isStalled = true;
    },
    delay: (ms, text) => {
      delayed = { ms, text, done: Promise.withResolvers<void>() };
      return delayed.done.promise;
    },
    heal: () => {
      destroyAll();
      isStalled = false;
    },
    expect: (text, accident) => {
      const done = Promise.withResolvers<void>();
      expected = { text, accident, done };
      return done.promise;
    },
  };
}
