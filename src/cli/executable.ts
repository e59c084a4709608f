import { main } from './main.ts';

// The entry of the single executable (build/executable.ts). bin/plant-store.js does the same for a clone and a package.
process.umask(0o077);
process.title = 'plant-store';
await main();
