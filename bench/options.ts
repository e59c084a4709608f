import { parseArgs } from 'node:util';
import { messageOf } from '../src/api-errors.ts';
import { autocannonGenerator } from './load/autocannon.ts';
import type { Generator } from './load/generator.ts';
import { isInstalled, wrk } from './load/wrk.ts';
import { parts } from './scenarios/all-scenarios.ts';
import type { Part } from './scenarios/scenario.ts';

export interface Options {
  readonly parts: readonly Part[];
  readonly rounds: number;
  readonly seconds: number;
  /** Seconds of load before the first round, not counted. */
  readonly warmUp: number;
  readonly generator: Generator;
  /** Whether what people would pick instead is installed and measured too. */
  readonly withAlternatives: boolean;
  /** Where the JSON goes; undefined for nowhere. */
  readonly json: string | undefined;
}

const names = parts.map(({ name }) => name);

export const usage = `Measures the service beside a bare node:http handler, PostgreSQL, and what people would pick instead.

npm run bench -- [options]

  --parts ${names.slice(0, 2).join(',')},…     what to measure; all of it unless given
  --rounds N                  how often each is measured (3)
  --seconds N                 how long each time (2)
  --warm-up N                 seconds of load before that, 0 for none (6, after which little is left to compile)
  --generator wrk|autocannon  what makes the load (wrk where it is installed)
  --no-alternatives           without what people would pick instead, which is installed otherwise
  --json FILE                 also writes all figures there

${parts.map(({ name, about }) => `  ${name.padEnd(26)}  ${about}`).join('\n')}
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
    parts: readParts(values.parts),
    rounds: readCount('--rounds', values.rounds ?? '3', { from: 1, to: 100 }),
    seconds: readCount('--seconds', values.seconds ?? '2', { from: 1, to: 600 }),
    warmUp: readCount('--warm-up', values['warm-up'] ?? '6', { from: 0, to: 600 }),
    generator: readGenerator(values.generator),
    withAlternatives: values['no-alternatives'] !== true,
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

function readGenerator(name: string | undefined): Generator {
  if (name === undefined) return isInstalled('wrk') ? wrk : autocannonGenerator;
  const generator = [wrk, autocannonGenerator].find((one) => one.name === name);
  if (generator === undefined) throw new OptionsInvalid(`--generator takes wrk or autocannon, not ${name}`);
  if (generator === wrk && !isInstalled('wrk')) throw new OptionsInvalid('wrk is not installed');
  return generator;
}
