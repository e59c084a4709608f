import { main } from './main.ts';

// Entry point of the single executable (build/executable.ts). A clone and a package start with
// bin/plant-store.js.
process.umask(0o077);
process.title = 'plant-store';
await main();
