import { parseArgs } from 'node:util';
import { autocannonGenerator } from './load/autocannon.ts';
import type { Generator } from './load/generator.ts';
import { isWrkInstalled, wrk } from './load/wrk.ts';
import { type Part, parts } from './workloads.ts';

export interface Options {
  readonly only: readonly Part[];
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, not counted. */
  readonly warmUp: number;
  readonly generator: Generator;
  /** Where the JSON goes; undefined for nowhere. */
  readonly json: string | undefined;
}

export const usage = `Measures the service beside a bare node:http handler.

npm run bench -- [options]

  --only ${parts.join(',')}   what to measure; all of it unless given
  --rounds N                  how often each is measured (3)
  --seconds N                 how long each time (4)
  --warm-up N                 seconds of load before that, 0 for none (1)
  --generator wrk|autocannon  what makes the load (wrk where it is installed)
  --json FILE                 also writes all figures there
`;

/** Arguments that cannot be followed; the message says why. */
export class OptionsInvalid extends Error {
  override readonly name = 'OptionsInvalid';
}

/** The options that arguments give; undefined when they ask for help. Throws OptionsInvalid. */
export function readOptions(args: readonly string[]): Options | undefined {
  const values = parse(args);
  if (values.help === true) return undefined;
  return {
    only: readParts(values.only),
    rounds: readCount('--rounds', values.rounds ?? '3', { from: 1, to: 100 }),
    seconds: readCount('--seconds', values.seconds ?? '4', { from: 1, to: 600 }),
    warmUp: readCount('--warm-up', values['warm-up'] ?? '1', { from: 0, to: 600 }),
    generator: readGenerator(values.generator),
    json: values.json,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        only: { type: 'string' },
        rounds: { type: 'string' },
        seconds: { type: 'string' },
        'warm-up': { type: 'string' },
        generator: { type: 'string' },
        json: { type: 'string' },
        help: { type: 'boolean' },
      },
    }).values;
  } catch (error: unknown) {
    throw new OptionsInvalid(error instanceof Error ? error.message : String(error));
  }
}

function readParts(text: string | undefined): readonly Part[] {
  if (text === undefined) return parts;
  return text.split(',').map((wanted) => {
    const part = parts.find((one) => one === wanted);
    if (part === undefined)
      throw new OptionsInvalid(`--only takes some of ${parts.join(',')}, not ${wanted}`);
    return part;
  });
}

function readCount(flag: string, text: string, { from, to }: { from: number; to: number }): number {
  const count = Number(text);
  if (!/^[0-9]{1,4}$/.test(text) || count < from || count > to) {
    throw new OptionsInvalid(`${flag} takes a whole number from ${from} to ${to}, not ${text}`);
  }
  return count;
}

function readGenerator(name: string | undefined): Generator {
  if (name === undefined) return isWrkInstalled() ? wrk : autocannonGenerator;
  const generator = [wrk, autocannonGenerator].find((one) => one.name === name);
  if (generator === undefined) throw new OptionsInvalid(`--generator takes wrk or autocannon, not ${name}`);
  return generator;
}
