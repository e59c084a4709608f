import { parseArgs } from 'node:util';
import { messageOf } from '../src/thrown-errors.ts';
import { autocannonGenerator } from './load/autocannon.ts';
import type { Generator } from './load/generator.ts';
import { isInstalled, wrk } from './load/wrk.ts';
import { parts } from './scenarios/all-scenarios.ts';
import type { Growth, Part } from './scenarios/scenario.ts';

export interface Options {
  readonly parts: readonly Part[];
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of unmeasured load before the first round. */
  readonly warmUp: number;
  readonly generator: Generator;
  /** True to install and measure the alternatives to our service too. */
  readonly withAlternatives: boolean;
  /** Sizes of the stores in the part `growth`. */
  readonly growth: Growth;
  /** File for the results as JSON; undefined for none. */
  readonly json: string | undefined;
}

const names = parts.map(({ name }) => name);

export const usage = `Measures the service, a bare node:http handler, PostgreSQL, and alternatives to the service.

npm run bench -- [options]

  ${`--parts ${names.slice(0, 2).join(',')},…`.padEnd(26)}  parts to measure; all by default
  --rounds N                  measurements of each contender (3)
  --seconds N                 duration of a measurement (2)
  --warm-up N                 seconds of load before the first, 0 for none (6: then most code is compiled)
  --generator wrk|autocannon  load generator (wrk if installed)
  --growth short|full         largest store 1,000,000 or 50,000,000 plants (short); full needs 25 GB of disk
  --no-alternatives           skip the alternatives, which are installed otherwise
  --json FILE                 write all figures to FILE

${parts.map(({ name, about }) => `  ${name.padEnd(26)}  ${about}`).join('\n')}
`;

/** Thrown for invalid arguments; the message has the reason. */
export class OptionsInvalid extends Error {
  override readonly name = 'OptionsInvalid';
}

/** Parses the command line. Returns undefined for --help. Throws OptionsInvalid. */
export function readOptions(args: readonly string[]): Options | undefined {
  const values = parse(args);
  if (values.help === true) return undefined;
  return {
    parts: readParts(values.parts),
    rounds: readCount('--rounds', values.rounds ?? '3', { from: 1, to: 100 }),
    seconds: readCount('--seconds', values.seconds ?? '2', { from: 1, to: 600 }),
    warmUp: readCount('--warm-up', values['warm-up'] ?? '6', { from: 0, to: 600 }),
    generator: readGenerator(values.generator),
    withAlternatives: values['no-alternatives'] !== true,
    growth: readGrowth(values.growth),
    json: values.json,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        parts: { type: 'string' },
        rounds: { type: 'string' },
        seconds: { type: 'string' },
        'warm-up': { type: 'string' },
        generator: { type: 'string' },
        growth: { type: 'string' },
        'no-alternatives': { type: 'boolean' },
        json: { type: 'string' },
        help: { type: 'boolean' },
      },
    }).values;
  } catch (error: unknown) {
    throw new OptionsInvalid(messageOf(error));
  }
}

function readParts(text: string | undefined): readonly Part[] {
  if (text === undefined) return parts;
  return [...new Set(text.split(','))].map((wanted) => {
    const part = parts.find(({ name }) => name === wanted);
    if (part === undefined)
      throw new OptionsInvalid(`--parts takes some of ${names.join(',')}, not ${wanted}`);
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

function readGrowth(name = 'short'): Growth {
  if (name !== 'short' && name !== 'full')
    throw new OptionsInvalid(`--growth takes short or full, not ${name}`);
  return name;
}

function readGenerator(name: string | undefined): Generator {
  if (name === undefined) return isInstalled('wrk') ? wrk : autocannonGenerator;
  const generator = [wrk, autocannonGenerator].find((one) => one.name === name);
  if (generator === undefined) throw new OptionsInvalid(`--generator takes wrk or autocannon, not ${name}`);
  if (generator === wrk && !isInstalled('wrk')) throw new OptionsInvalid('wrk is not installed');
  return generator;
}
