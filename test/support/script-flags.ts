import { type ParseArgsOptionDescriptor, parseArgs } from 'node:util';
import { messageOf } from '../../src/thrown-errors.ts';

/** A command-line flag of a script, with its default value. */
interface Flag extends ParseArgsOptionDescriptor {
  readonly type: 'string' | 'boolean';
  /**
   * Describes the allowed values: numbers by default; `a|b` allows only `a` and `b`; any other word allows
   * any text.
   */
  readonly takes?: string;
  readonly about: string;
}

/** The flag for the seed of all random choices in a script. */
export const seedFlag = {
  type: 'string',
  about: 'seed of all random choices; random by default',
} as const satisfies Flag;

export function newSeed(): string {
  return `${Date.now() % 1e6}`;
}

/**
 * Parses the flags of a script. With `--help`, prints the help and exits with 0. With invalid flags, prints a
 * line on stderr and exits with 2.
 */
export function readFlags<const Flags extends Readonly<Record<string, Flag>>>(about: string, flags: Flags) {
  if (process.argv.includes('--help')) {
    process.stdout.write(describe(about, flags));
    process.exit(0);
  }
  try {
    const { values } = parseArgs({ options: flags });
    for (const [name, value] of Object.entries(values))
      if (typeof value === 'string') demand(name, value, flags[name]?.takes);
    return values;
  } catch (error: unknown) {
    const [reason] = messageOf(error).split('\n');
    process.stderr.write(`${reason}; --help lists the flags\n`);
    process.exit(2);
  }
}

function demand(name: string, value: string, takes = 'N'): void {
  if (
    takes === 'N' ? /^\d+(?:\.\d+)?$/.test(value) : !takes.includes('|') || takes.split('|').includes(value)
  )
    return;
  throw new Error(`--${name} takes ${takes === 'N' ? 'a number' : takes}, not ${value}`);
}

function describe(about: string, flags: Readonly<Record<string, Flag>>): string {
  const rows = Object.entries(flags).map(([name, flag]): [string, string] => {
    const fallback = flag.default === undefined ? '' : ` (${flag.default})`;
    const takes = flag.type === 'boolean' ? '' : ` ${flag.takes ?? 'N'}`;
    return [`--${name}${takes}`, `${flag.about}${fallback}`];
  });
  const width = Math.max(0, ...rows.map(([flag]) => flag.length));
  return [about, '', ...rows.map(([flag, text]) => `  ${flag.padEnd(width)}  ${text}`), ''].join('\n');
}
