#!/usr/bin/env node
import { existsSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** The first of Node 24 with `limits` in node:sqlite. */
const NEEDED = '24.15';

// In place of the arguments, among which a database URL may have a password: anybody on the machine can list processes.
process.title = 'plant-store';

if (process.versions.node.localeCompare(NEEDED, 'en', { numeric: true }) < 0) {
  process.stderr.write(`plant-store: needs Node ${NEEDED} or newer; this is ${process.versions.node}\n`);
  process.exit(1);
}
// Before anything else is loaded, and in JavaScript, since what takes the types off need not be loaded either then. In a
// folder of the user's own: Node's default is one that others can write to. Threads take it from the variable.
try {
  process.env.NODE_COMPILE_CACHE ??= join(homedir(), '.cache', 'plant-store');
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
} catch {
  // A user without a home, as the number of one in a container, does without.
}
// A clone has the sources, which Node runs as they are; the published package has what they are compiled to.
const hasSources = existsSync(new URL('../src/cli/program.ts', import.meta.url));
const { runProgram } = await import(hasSources ? '../src/cli/program.ts' : '../dist/cli/program.js');
await runProgram();
