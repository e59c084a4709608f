import { join } from 'node:path';
import type { Generator } from './generator.ts';

/** autocannon, which comes with the development dependencies; on one thread, as wrk. */
export const autocannonGenerator: Generator = {
  name: 'autocannon',
  command: (job) => [
    process.execPath,
    join(import.meta.dirname, 'autocannon-process.ts'),
    JSON.stringify(job),
  ],
};
