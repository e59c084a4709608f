import { protectCompileCache } from '../../bin/compile-cache.js';

// Entry point of the single executable, which build/executable.ts creates. A Git clone and the npm package
// start with bin/plant-store.js instead.
process.on('SIGUSR1', () => undefined);
process.umask(0o077);
process.title = 'plant-store';
protectCompileCache();
// Without a top-level await, which the executable's CommonJS does not have.
void import('./main.ts').then(({ main }) => main());
