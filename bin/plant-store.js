#!/usr/bin/env node
import { existsSync, realpathSync } from 'node:fs';
import module from 'node:module';
import { fileURLToPath } from 'node:url';
import { createPrivateCache, protectCompileCache } from './compile-cache.js';

// Ignores SIGUSR1 before anything else: Node would open its debugger, a port without authentication that runs any code.
process.on('SIGUSR1', () => undefined);

/** The first versions of Node 24 and 26 whose `writableFinished` is false for a response that was cut off. Node 25 has none. */
const MIN_NODE_24 = '24.20';
const MIN_NODE_26 = '26.7';
/** The first SQLite whose reset of the write-ahead log cannot corrupt the file. A Node of a distribution may have an older one. */
const MIN_SQLITE = '3.51.3';

// Only this user may read and write the files and folders that the process creates. The single executable repeats
// SIGUSR1, umask and title in src/cli/executable.ts.
process.umask(0o077);

// Hides the arguments from the process list: a database URL may have a password.
process.title = 'plant-store';

// A clone has the sources, which Node runs directly. The published package has the bundle.
const hasSources = existsSync(new URL('../src/cli/main.ts', import.meta.url));

const { node, sqlite = '0' } = process.versions;
const isOldNode = isOlder(node, MIN_NODE_24) || (!isOlder(node, '25') && isOlder(node, MIN_NODE_26));
if (isOldNode || isOlder(sqlite, MIN_SQLITE)) {
  const fault = isOldNode
    ? `needs Node 24 from ${MIN_NODE_24}, or Node ${MIN_NODE_26} or newer; this is ${node}`
    : `needs a Node with SQLite ${MIN_SQLITE} or newer, as those of nodejs.org have; this is ${node} with SQLite ${sqlite}`;
  const remedy = hasSources ? remedyIn(fileURLToPath(new URL('../', import.meta.url))) : '';
  process.stderr.write(`plant-store: ${fault}${remedy}\n`);
  process.exit(1);
}
// Runs before other imports, so that all are cached. In JavaScript, so that Node loads no type stripper for it.
// Worker threads read the variable.
const cache = process.env.NODE_COMPILE_CACHE || createPrivateCache();
if (cache !== undefined) {
  process.env.NODE_COMPILE_CACHE = cache;
  module.enableCompileCache(cache);
  protectCompileCache();
}
const { main } = await import(hasSources ? '../src/cli/main.ts' : '../lib/cli/main.js');
await main();

function isOlder(version, min) {
  return version.localeCompare(min, 'en', { numeric: true }) < 0;
}

/** Returns what to do in a clone. npm finds its Node by the PATH, which cannot contain a folder with a colon. */
function remedyIn(clone) {
  const installed = `${clone}node_modules/node/bin/node`;
  if (!existsSync(installed) || realpathSync(installed) === realpathSync(process.execPath))
    return '. Run `npm ci --ignore-scripts=false`, which installs it, and start with `npx plant-store`';
  const otherwise = clone.includes(':')
    ? 'move the clone to a path without `:`, which separates folders of the PATH'
    : 'start with `npx plant-store`';
  return `. The PATH lacks the Node of this clone: run \`node_modules/.bin/node bin/plant-store.js\` in the clone, or ${otherwise}`;
}
