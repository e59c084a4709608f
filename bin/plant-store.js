#!/usr/bin/env node
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/** The first of Node 24 with `limits` in node:sqlite. */
const NEEDED = '24.15';

// All files and folders that are made from here on are for this user alone.
process.umask(0o077);

// In place of the arguments, among which a database URL may have a password: anybody on the machine can list processes.
process.title = 'plant-store';

if (process.versions.node.localeCompare(NEEDED, 'en', { numeric: true }) < 0) {
  process.stderr.write(`plant-store: needs Node ${NEEDED} or newer; this is ${process.versions.node}\n`);
  process.exit(1);
}
// Before anything else is loaded, and in JavaScript, since what takes the types off need not be loaded either then.
// Threads take it from the variable.
const cache = process.env.NODE_COMPILE_CACHE || privateCache();
if (cache !== undefined) {
  process.env.NODE_COMPILE_CACHE = cache;
  module.enableCompileCache(cache);
}
// A clone has the sources, which Node runs as they are; the published package has what they are compiled to.
const hasSources = existsSync(new URL('../src/cli/program.ts', import.meta.url));
const { runProgram } = await import(hasSources ? '../src/cli/program.ts' : '../dist/cli/program.js');
await runProgram();

/**
 * Makes and returns a folder for compiled code in the home folder; undefined where other users could put code there, which
 * would run as this one, or where there is no home, as for the number of a user in a container.
 */
function privateCache() {
  try {
    const home = homedir();
    const parent = join(home, '.cache');
    const folder = join(parent, 'plant-store');
    if (!isAbsolute(home)) return undefined;
    mkdirSync(folder, { recursive: true });
    const inside = readdirSync(folder).map((name) => join(folder, name));
    return isUnshared(home) && [parent, folder, ...inside].every(isPrivate) ? folder : undefined;
  } catch {
    return undefined;
  }
}

// In a sticky folder, such as /tmp, others can add names and not change those of this user.
function isUnshared(folder) {
  const { mode } = statSync(folder);
  return process.getuid === undefined || (mode & 0o022) === 0 || (mode & 0o1000) !== 0;
}

function isPrivate(path) {
  if (process.getuid === undefined) return true;
  const { mode, uid } = statSync(path);
  return uid === process.getuid() && (mode & 0o022) === 0;
}
