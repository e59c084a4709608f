import { copyFileSync, globSync } from 'node:fs';

/**
 * Keeps the licence of Node in the package `node`, for the executable. The install script of `node` unpacks Node with
 * its licence in a nested package, which the next `npm install` removes.
 */

for (const file of globSync('node_modules/node/node_modules/node-*/LICENSE'))
  copyFileSync(file, 'node_modules/node/LICENSE');
