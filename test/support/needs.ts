import { spawnSync } from 'node:child_process';

/** The reason for not running a test begins with this word. The summary of the tests lists such reasons. */
export const NEEDS = 'needs ';

/**
 * Options of a test that needs something on the machine: without it the test is not run, and the summary says
 * so.
 */
export function needs(what: string, isPresent: boolean): { readonly skip?: string } {
  return isPresent ? {} : { skip: `${NEEDS}${what}` };
}

/** Options of a test that needs an installed program. */
export function needsProgram(name: string): { readonly skip?: string } {
  return needs(name, spawnSync(name, ['--version'], { stdio: 'ignore' }).error === undefined);
}

/** Returns whether a command succeeds on this machine. */
export function canRun(name: string, ...args: readonly string[]): boolean {
  return spawnSync(name, args, { stdio: 'ignore' }).status === 0;
}
