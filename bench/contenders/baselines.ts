import { join } from 'node:path';
import { startServerProcess } from './server-process.ts';
import type { Subject } from './subject.ts';

/** A bare node:http server: the minimum work of any HTTP/JSON service on Node. */
export const bareNode = baseline('bare node:http', 'bare-node-server.ts');

/** A plain Fastify server: the minimum work of any service on Fastify, which our service uses. */
export const plainFastify = baseline('plain Fastify', 'plain-fastify-server.ts');

function baseline(name: string, script: string): Subject {
  return {
    name,
    start: async (folder) => {
      const { stop, ...server } = await startServerProcess(
        [join(import.meta.dirname, script)],
        join(folder, 'log'),
      );
      return {
        ...server,
        headers: {},
        targetOf: (target) => target,
        prepare: async () => {},
        close: stop,
      };
    },
  };
}
