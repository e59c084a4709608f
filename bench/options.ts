import { isInstalled } from '../test/support/needs.ts';
import { readFlags } from '../test/support/script-flags.ts';
import { autocannonGenerator } from './load/autocannon.ts';
import type { Generator } from './load/generator.ts';
import { wrk } from './load/wrk.ts';
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

const ABOUT = `Measures the service, a bare node:http handler, PostgreSQL, and alternatives to the service.

${parts.map(({ name, about }) => `  ${name.padEnd(10)}  ${about}`).join('\n')}`;

/** Thrown for invalid arguments; the message has the reason. */
export class OptionsInvalid extends Error {
  override readonly name = 'OptionsInvalid';
}

/** Parses the command line, as `readFlags` does. Throws OptionsInvalid. */
export function readOptions(): Options {
  const values = readFlags(ABOUT, {
    parts: { type: 'string', takes: 'LIST', default: names.join(','), about: 'parts to measure' },
    rounds: { type: 'string', default: '3', about: 'measurements of each contender, up to 100' },
    seconds: { type: 'string', default: '2', about: 'duration of a measurement' },
    'warm-up': {
      type: 'string',
      default: '6',
      about: 'seconds of load before the first, in which code is compiled',
    },
    generator: {
      type: 'string',
      takes: 'wrk|autocannon',
      default: isInstalled('wrk') ? 'wrk' : 'autocannon',
      about: 'load generator',
    },
    growth: {
      type: 'string',
      takes: 'short|full',
      default: 'short',
      about: 'largest store 1,000,000 or 50,000,000 plants; full needs 25 GB of disk',
    },
    'no-alternatives': { type: 'boolean', about: 'skip the alternatives, which are installed otherwise' },
    json: { type: 'string', takes: 'FILE', about: 'write all figures to FILE' },
  });
  return {
    parts: readParts(values.parts),
    rounds: readCount('--rounds', values.rounds, { from: 1, to: 100 }),
    seconds: readCount('--seconds', values.seconds, { from: 1, to: 600 }),
    warmUp: readCount('--warm-up', values['warm-up'], { from: 0, to: 600 }),
    generator: readGenerator(values.generator),
    withAlternatives: values['no-alternatives'] !== true,
    growth: values.growth === 'full' ? 'full' : 'short',
    json: values.json,
  };
}

function readParts(text: string): readonly Part[] {
  return [...new Set(text.split(','))].map((wanted) => {
    const part = parts.find(({ name }) => name === wanted);
    if (part === undefined)
      throw new OptionsInvalid(`--parts takes some of ${names.join(',')}, not ${wanted}`);
    return part;
  });
}

function readCount(flag: string, text: string, { from, to }: { from: number; to: number }): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= from && count <= to) return count;
  throw new OptionsInvalid(`${flag} takes a whole number from ${from} to ${to}, not ${text}`);
}

function readGenerator(name: string): Generator {
  if (name === 'autocannon') return autocannonGenerator;
  if (!isInstalled('wrk')) throw new OptionsInvalid('wrk is not installed');
  return wrk;
}
