import { join } from 'node:path';
import { startServerProcess } from './server-process.ts';
import type { Subject } from './subject.ts';

/** The baseline: the minimum that any HTTP/JSON service on Node must do. */
export const bareNode: Subject = {
  name: 'bare node:http',
  start: async (folder) => {
    const { url, pid, stop } = await startServerProcess(
      [join(import.meta.dirname, 'bare-node-server.ts')],
      join(folder, 'log'),
    );
    return {
      url,
      pid,
      headers: {},
      requestsOf: ({ requests }) => requests,
      prepare: async () => {},
      close: stop,
    };
  },
};
