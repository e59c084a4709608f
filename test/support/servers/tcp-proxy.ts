import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { listenOnFreePort } from './free-port.ts';

/** A proxy between clients and a local server, which can cause faults of the network. */
interface TcpProxy {
  readonly port: number;
  /** Stops all traffic in both directions. Connections stay open and see no error. */
  stall(): void;
  /**
   * Delays all data from the server by `ms` milliseconds. Resolves when data that contains `text` is delayed.
   */
  delay(ms: number, text: string): Promise<void>;
  /** Sends the held answers. */
  release(): void;
  /** Ends a stall: closes all connections, so that their stalled data is lost. New connections work. */
  recover(): void;
  /**
   * Causes a fault when a client next sends data that matches `text`. Resolves when the fault has happened.
   */
  expect(text: RegExp, accident: Accident): Promise<void>;
}

/**
 * Faults: `cut before` closes the connection before the server gets the data. `cut after` closes the
 * connection when the server responds, and drops the response. `stall` stops all traffic. `hold` keeps the
 * answers on this connection until `release`.
 */
type Accident = 'cut before' | 'cut after' | 'stall' | 'hold';

interface Expected {
  readonly text: RegExp;
  readonly accident: Accident;
  readonly done: PromiseWithResolvers<void>;
}

/**
 * Starts a proxy to a local port. It stops after the test. `onSent` receives all data for the server, and a
 * socket that identifies the connection. `rewrite` changes the data from the server, and `rewriteSent` that for it.
 */
export async function startTcpProxy(
  t: Pick<TestContext, 'after'>,
  target: number,
  onSent: (bytes: Buffer, connection: Socket) => void = () => undefined,
  rewrite: (bytes: Buffer) => Buffer = (bytes) => bytes,
  rewriteSent: (bytes: Buffer) => Buffer = (bytes) => bytes,
): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let isStalled = false;
  let delayed = { ms: 0, text: '', done: Promise.withResolvers<void>() };
  let expected: Expected | undefined;
  let releaseAnswers = (): void => undefined;

  const listener = createServer({ allowHalfOpen: true }, (client) => {
    const server = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
    const both = [client, server];
    const end = (): void => {
      for (const socket of both) socket.destroy();
    };
    let atAnswer: Expected | undefined;
    let held: Buffer[] | undefined;
    for (const socket of both) {
      sockets.add(socket);
      // A failed socket also closes, so errors need no handling. While traffic is stalled, ends, errors and closes
      // are not passed on.
      socket
        .on('error', () => undefined)
        .on('end', () => {
          if (!isStalled) socket.end();
        })
        .on('close', () => {
          sockets.delete(socket);
          if (!isStalled) end();
        });
    }
    client.on('data', (bytes: Buffer) => {
      onSent(Buffer.from(bytes), client);
      const due = expected?.text.test(bytes.toString('latin1')) ? expected : undefined;
      if (due !== undefined) expected = undefined;
      if (due?.accident === 'cut before') end();
      if (due?.accident === 'stall') isStalled = true;
      if (due?.accident === 'hold') {
        held = [];
        releaseAnswers = () => {
          for (const answer of held ?? []) client.write(answer);
          held = undefined;
        };
      }
      if (due?.accident === 'cut after') atAnswer = due;
      else due?.done.resolve();
      if (!isStalled && server.writable) server.write(rewriteSent(bytes));
    });
    server.on('data', (bytes: Buffer) => {
      if (atAnswer !== undefined) {
        end();
        atAnswer.done.resolve();
      } else if (held !== undefined) {
        held.push(bytes);
      } else if (delayed.ms > 0) {
        if (bytes.includes(delayed.text)) delayed.done.resolve();
        setTimeout(() => client.write(bytes), delayed.ms);
      } else if (!isStalled && client.writable) {
        client.write(rewrite(bytes));
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
    release: () => releaseAnswers(),
    recover: () => {
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
