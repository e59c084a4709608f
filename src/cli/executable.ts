import { protectCompileCache } from '../../bin/compile-cache.js';

// Entry point of the single executable, which build/executable.ts creates. A Git clone and the npm package
// start with bin/plant-store.js instead.
process.on('SIGUSR1', () => undefined);
process.umask(0o077);
process.title = 'plant-store';
protectCompileCache();
const { main } = await import('./main.ts');
await main();
