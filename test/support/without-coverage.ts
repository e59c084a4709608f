import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Command that measures no coverage, since it cannot write the file or would take longer. */
export function withoutCoverage(command: readonly string[]): readonly string[] {
  return ['env', '--unset=NODE_V8_COVERAGE', ...command];
}

/** Runs a Node program of this folder without coverage. Returns what it prints. */
export async function runWithoutCoverage(program: string, ...args: readonly string[]): Promise<string> {
  const [name = '', ...rest] = withoutCoverage([
    process.execPath,
    '--expose-gc',
    join(import.meta.dirname, program),
    ...args,
  ]);
  const { stdout } = await promisify(execFile)(name, rest);
  return stdout;
}
