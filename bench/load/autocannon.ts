import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Generator } from './generator.ts';

/** autocannon, a load generator among the development dependencies. Leaves one core to the server. */
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
