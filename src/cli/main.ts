#!/usr/bin/env node
import { enableCompileCache } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

// In place of the arguments, among which a database URL may have a password: anybody on the machine can list processes.
process.title = 'plant-store';

// Before anything else is loaded: it takes half of the time off every start but the first. In a folder of the user's
// own, since Node's default is one that others can write to.
enableCompileCache(join(homedir(), '.cache', 'plant-store'));
const { runProgram } = await import('./program.ts');
await runProgram();
