#!/usr/bin/env node
import { existsSync } from 'node:fs';

const NEEDED = 24;

if (Number.parseInt(process.versions.node, 10) < NEEDED) {
  process.stderr.write(`plant-store: needs Node ${NEEDED} or newer; this is ${process.versions.node}\n`);
  process.exit(1);
}
// A clone has the sources, which Node runs as they are; the published package has what they are compiled to.
const hasSources = existsSync(new URL('../src/cli/main.ts', import.meta.url));
await import(hasSources ? '../src/cli/main.ts' : '../dist/cli/main.js');
