import { type ParseArgsOptionDescriptor, parseArgs } from 'node:util';

/** A flag of a command that people run, with what its value is when it is not given. */
interface Flag extends ParseArgsOptionDescriptor {
  readonly type: 'string';
  /** What may follow: a number unless told, one of `this|that`, or any text, for which this is a word. */
  readonly takes?: string;
  readonly about: string;
}

/** What all chance in a command comes from. */
export const seedFlag = {
  type: 'string',
  about: 'what all chance comes from; another each time unless given',
} as const satisfies Flag;

export function newSeed(): string {
  return `${Date.now() % 1e6}`;
}

/**
 * The flags this process was started with. It ends here with 0 when they ask for `--help`, which then says what the
 * command does; with 2, and a line on stderr, when they cannot be followed.
 */
export function readFlags<const Flags extends Readonly<Record<string, Flag>>>(about: string, flags: Flags) {
  if (process.argv.includes('--help')) {
    process.stdout.write(describe(about, flags));
    process.exit(0);
  }
  try {
    const { values } = parseArgs({ options: flags });
    for (const [name, value] of Object.entries(values)) demand(name, String(value), flags[name]?.takes);
    return values;
  } catch (error: unknown) {
    const [reason] = (error instanceof Error ? error.message : String(error)).split('\n');
    process.stderr.write(`${reason}; --help tells the flags\n`);
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
    return [`--${name} ${flag.takes ?? 'N'}`, `${flag.about}${fallback}`];
  });
  const width = Math.max(0, ...rows.map(([flag]) => flag.length));
  return [about, '', ...rows.map(([flag, text]) => `  ${flag.padEnd(width)}  ${text}`), ''].join('\n');
}
