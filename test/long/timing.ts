import { crc32 } from 'node:zlib';
import { openWire } from '../support/clients/raw-connection.ts';
import { createRandom } from '../support/data/seeded-random.ts';
import { newInstallation } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const PREFIX_LENGTH = 4;
const CHECKSUM_LENGTH = 6;

/**
 * Above this, two classes of timings differ (Reparaz, Balasch and Verbauwhede, dude, is my code constant time?,
 * 2017).
 */
export const T_LIMIT = 4.5;

/** Longer times come from the machine, and hide a difference instead of showing it (same paper, on cropping). */
const CROPPED_ABOVE = 0.95;
const UNMEASURED = 200;

interface TimingOptions {
  /** The address of the service. */
  readonly url: string;
  readonly guesses: Guesses;
  /** Attempts per kind, in random order. */
  readonly tries: number;
  readonly seed: number;
}

/** Wrong tokens: one differs early, one late. */
interface Guesses {
  readonly early: readonly string[];
  readonly late: readonly string[];
}

interface Timing {
  /** Welch's t of the two kinds. */
  readonly t: number;
  /** Means in microseconds. */
  readonly early: number;
  readonly late: number;
  /** The smallest difference that the test would have detected, in microseconds. */
  readonly resolution: number;
}

/** Changes one character of a token. Recomputes the checksum, unless the token is to look mistyped. */
export function guessesFor(token: string, { hasChecksum }: { hasChecksum: boolean }): Guesses {
  const lastAt = token.length - 1 - (hasChecksum ? CHECKSUM_LENGTH : 0);
  const wrongAt = (place: number): readonly string[] =>
    [...ALPHABET]
      .filter((character) => character !== token[place])
      .map((character) => token.slice(0, place) + character + token.slice(place + 1))
      .map((guess) => (hasChecksum ? withChecksum(guess) : guess));
  return { early: wrongAt(PREFIX_LENGTH), late: wrongAt(lastAt) };
}

function withChecksum(token: string): string {
  const body = token.slice(0, -CHECKSUM_LENGTH);
  let text = '';
  for (let rest = crc32(body); text.length < CHECKSUM_LENGTH; rest = Math.floor(rest / ALPHABET.length)) {
    text = ALPHABET.charAt(rest % ALPHABET.length) + text;
  }
  return body + text;
}

/** Measures how long a service takes to reject each kind, on one connection. */
export async function compareTimings({ url, guesses, tries, seed }: TimingOptions): Promise<Timing> {
  const wire = openWire(url);
  const random = createRandom(seed);
  const times = { early: [] as number[], late: [] as number[] };

  async function time(token: string): Promise<number> {
    const request = `GET /plants?limit=0 HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n\r\n`;
    const began = process.hrtime.bigint();
    wire.send(request);
    const answer = await wire.answer();
    const took = Number(process.hrtime.bigint() - began) / 1_000;
    if (answer?.status !== 401) throw new Error(`a wrong token got ${answer?.status ?? 'no response'}`);
    return took;
  }

  for (let count = 0; count < 2 * (tries + UNMEASURED); count += 1) {
    const kind = random() < 0.5 ? 'early' : 'late';
    const guess = guesses[kind][Math.floor(random() * guesses[kind].length)] ?? '';
    const took = await time(guess);
    if (count >= 2 * UNMEASURED) times[kind].push(took);
  }
  wire.destroy();
  return compare(times.early, times.late);
}

function compare(early: readonly number[], late: readonly number[]): Timing {
  const sorted = [...early, ...late].sort((a, b) => a - b);
  const limit = sorted[Math.floor(sorted.length * CROPPED_ABOVE)] ?? Number.POSITIVE_INFINITY;
  const [one, other] = [statisticsOf(early, limit), statisticsOf(late, limit)];
  const error = Math.sqrt(one.variance / one.count + other.variance / other.count);
  return {
    t: (one.mean - other.mean) / error,
    early: one.mean,
    late: other.mean,
    resolution: T_LIMIT * error,
  };
}

function statisticsOf(all: readonly number[], limit: number) {
  const values = all.filter((value) => value <= limit);
  const count = values.length;
  const mean = values.reduce((sum, value) => sum + value, 0) / count;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1);
  return { count, mean, variance };
}

/** Formats the figures. */
export function describeTiming({ t, early, late, resolution }: Timing): string {
  return (
    `wrong first ${early.toFixed(2)} µs, wrong last ${late.toFixed(2)} µs, t = ${t.toFixed(2)}; ` +
    `a difference of ${resolution.toFixed(2)} µs would have been detected`
  );
}

interface ServiceTimings {
  /** Wrong tokens that the checksum detects, and those that only the store can detect. */
  readonly mistyped: Timing;
  readonly forged: Timing;
}

/** Starts a service and compares its times to reject near-misses of a valid token. */
export async function timeService(tries: number, seed: number): Promise<ServiceTimings> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token();
  const service = await installation.serve({
    flags: ['--refused-token-limit', '0'],
    env: { NODE_ENV: 'production', REFUSED_TOKEN_LIMIT: '0' },
    remembers: ({ msg }) => msg === 'serving',
  });
  const compareFor = (hasChecksum: boolean): Promise<Timing> =>
    compareTimings({ url: service.url, guesses: guessesFor(token, { hasChecksum }), tries, seed });
  const timings = { mistyped: await compareFor(false), forged: await compareFor(true) };
  await service.stop();
  return timings;
}

if (import.meta.main) {
  const values = readFlags(
    'Checks that the time to reject a wrong token does not depend on where it is wrong.',
    {
      tries: { type: 'string', default: '20000', about: 'attempts per kind of wrong token' },
      seed: seedFlag,
    },
  );
  const timings = await timeService(Number(values.tries), Number(values.seed ?? newSeed()));
  for (const [kind, timing] of Object.entries(timings)) {
    process.stdout.write(`${kind}: ${describeTiming(timing)}\n`);
    if (Math.abs(timing.t) >= T_LIMIT) process.exitCode = 1;
  }
}
