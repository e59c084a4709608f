import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Generator } from './generator.ts';

/** autocannon, which comes with the development dependencies; a worker on each core but the one of the server. */
export const autocannonGenerator: Generator = {
  name: 'autocannon',
  threads: Math.max(1, availableParallelism() - 1),
  command: (job) => [
    process.execPath,
    join(import.meta.dirname, 'autocannon-process.ts'),
    String(autocannonGenerator.threads),
    JSON.stringify(job),
  ],
};
