#!/usr/bin/env node
import { existsSync, mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';

// First, since Node opens its debugger on this signal until then: a port without authentication that runs any code.
process.on('SIGUSR1', () => undefined);

/** The first version of Node 24 with `limits` in node:sqlite. */
const MIN_NODE = '24.15';

// Only this user may read and write the files and folders that the process creates.
process.umask(0o077);

// Hides the arguments from the process list: a database URL may have a password.
process.title = 'plant-store';

// A clone has the sources, which Node runs directly. The published package has the bundle.
const hasSources = existsSync(new URL('../src/cli/main.ts', import.meta.url));

if (process.versions.node.localeCompare(MIN_NODE, 'en', { numeric: true }) < 0) {
  const remedy = hasSources
    ? '. Run `npm ci --ignore-scripts=false`, which installs it, and start with `npx plant-store`'
    : '';
  process.stderr.write(
    `plant-store: needs Node ${MIN_NODE} or newer; this is ${process.versions.node}${remedy}\n`,
  );
  process.exit(1);
}
// Runs before other imports, so that all are cached. In JavaScript, so that Node loads no type stripper for it.
// Worker threads read the variable.
const cache = process.env.NODE_COMPILE_CACHE || createPrivateCache();
if (cache !== undefined) {
  process.env.NODE_COMPILE_CACHE = cache;
  module.enableCompileCache(cache);
}
const { main } = await import(hasSources ? '../src/cli/main.ts' : '../lib/cli/main.js');
await main();

/**
 * Creates and returns a folder for compiled code in the home folder. Undefined where other users could write code to
 * it or replace it, and where the user has no home, such as a numeric user in a container.
 */
function createPrivateCache() {
  try {
    if (!isAbsolute(homedir())) return undefined;
    // Without symbolic links, which other users could change after the checks.
    let folder = realpathSync(homedir());
    for (const name of ['.cache', 'plant-store']) {
      if (!isProtected(folder)) return undefined;
      const path = join(folder, name);
      if (!existsSync(path)) mkdirSync(path);
      folder = realpathSync(path);
    }
    const entries = readdirSync(folder).map((name) => join(folder, name));
    return isProtected(folder) && [folder, ...entries].every(isPrivate) ? folder : undefined;
  } catch {
    return undefined;
  }
}

/** True if only this user and root can replace a folder, or a folder above it, or this user's entries in them. */
function isProtected(folder) {
  if (process.getuid === undefined) return true;
  const { mode, uid } = statSync(folder);
  // In a sticky folder, such as /tmp, other users cannot replace the entries of this user.
  const isUnshared = (mode & 0o022) === 0 || (mode & 0o1000) !== 0;
  const above = dirname(folder);
  return isUnshared && [process.getuid(), 0].includes(uid) && (above === folder || isProtected(above));
}

function isPrivate(path) {
  if (process.getuid === undefined) return true;
  const { mode, uid } = statSync(path);
  return uid === process.getuid() && (mode & 0o022) === 0;
}
