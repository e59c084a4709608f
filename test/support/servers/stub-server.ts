import { createServer, type RequestListener } from 'node:http';
import type { TestContext } from 'node:test';
import { listenOnFreePort } from './free-port.ts';

/** Starts an HTTP server with the given handler. It stops after the test. Resolves to its URL. */
export async function serve(t: Pick<TestContext, 'after'>, listener: RequestListener): Promise<string> {
  // Idle connections stay open: on a busy machine, one could be closed while its next request is on its way.
  const server = createServer({ keepAliveTimeout: 0 }, listener);
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${await listenOnFreePort(server)}`;
}
