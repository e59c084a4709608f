import { spawnSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';

/** First word of the reason why a test is not run. The test summary lists the tests with such a reason. */
export const NEEDS = 'needs ';

/**
 * Options of a test that needs a program or a feature of the machine. If this need is missing, the test is
 * not run, and the test summary lists the test.
 */
export function needs(what: string, isPresent: boolean): { readonly skip?: string } {
  return isPresent ? {} : { skip: `${NEEDS}${what}` };
}

/** Options of a test that needs an installed program. */
export function needsProgram(name: string): { readonly skip?: string } {
  return needs(name, isInstalled(name));
}

/** Returns whether this machine has a program. */
export function isInstalled(name: string): boolean {
  return spawnSync(name, ['--version'], { stdio: 'ignore' }).error === undefined;
}

/** Returns whether a command succeeds on this machine. */
export function canRun(name: string, ...args: readonly string[]): boolean {
  return spawnSync(name, args, { stdio: 'ignore' }).status === 0;
}

/** Returns whether this machine has an IPv6 address. */
export function hasIpv6(): boolean {
  const addresses = Object.values(networkInterfaces()).flat();
  return addresses.some((address) => address?.family === 'IPv6');
}
