import fc from 'fast-check';
import { openWire, type Wire } from '../support/clients/raw-connection.ts';
import { headerOf, type RawAnswer } from '../support/clients/raw-http.ts';
import { inMebibytes, MEBIBYTE, residentMemory } from '../support/process-resources.ts';
import { newInstallation } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';
import { anyRequest, type FuzzedRequest } from './fuzz-requests.ts';

interface FuzzOptions {
  /** The address of the service. */
  readonly url: string;
  /** Valid tokens. */
  readonly tokens: readonly string[];
  readonly requests: number;
  readonly connections: number;
  /** The seed of all requests. */
  readonly seed: number;
  /** The start in the sequence of one connection, as printed with a failure. */
  readonly path?: string;
  /** Time limit for a response. */
  readonly withinMs: number;
  /** Called after each request. */
  readonly onAnswered?: () => void;
}

interface FuzzSummary {
  readonly requests: number;
  /** The count of each status in responses to properly framed requests. */
  readonly statuses: ReadonlyMap<number, number>;
  /** The failure, with the smallest request that causes it and the command that repeats it. */
  readonly failures: readonly string[];
}

/** The share of the requests after which the memory no longer grows by compiled code (measured). */
const WARM_UP = 0.3;
const MIDDLE = (1 + WARM_UP) / 2;
/** Memory growth from the first to the second half that is not a leak. With fewer requests it is warm-up. */
const FUZZ_GROWTH_LIMIT = 32 * MEBIBYTE;

const REQUESTS_TO_JUDGE_MEMORY = 500_000;
const RETRIES_TO_SHRINK = 100;
const SHOWN = 2_000;

/** Sends requests that fast-check generates, on several connections, and checks each response. */
export async function fuzz(options: FuzzOptions): Promise<FuzzSummary> {
  const { connections, requests, seed } = options;
  const statuses = new Map<number, number>();
  const runs = Array.from({ length: options.path === undefined ? connections : 1 }, (_, number) =>
    fuzzOnOne({ ...options, requests: Math.ceil(requests / connections), seed: seed + number }, statuses),
  );
  const results = await Promise.all(runs);
  return {
    requests: results.reduce((sum, { requests }) => sum + requests, 0),
    statuses,
    failures: results.flatMap(({ failure }) => failure ?? []),
  };
}

async function fuzzOnOne(options: FuzzOptions, statuses: Map<number, number>) {
  const { url, tokens, requests, seed, path, withinMs, onAnswered = () => undefined } = options;
  let wire: Wire | undefined;
  let triesAfterFailure = 0;
  let hasFailed = false;

  async function send(request: FuzzedRequest): Promise<void> {
    wire ??= openWire(url);
    const used = wire;
    wire = undefined;
    try {
      if (await isStillGood(used, request)) wire = used;
    } finally {
      if (wire === undefined) used.destroy();
    }
  }

  async function isStillGood(used: Wire, { bytes, isWhole, isHead }: FuzzedRequest): Promise<boolean> {
    if (used.surplus() > 0) throw new Error('data arrived without a request');
    used.send(bytes);
    if (!isWhole) {
      used.end();
      assertNoFaults((await used.rest(withinMs)).toString('latin1'));
      return false;
    }
    const answer = await used.answer({ toHead: isHead, withinMs });
    if (answer === undefined) throw new Error('the connection was closed without a response');
    assertNoFault(answer, isHead);
    statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
    return headerOf(answer.headers, 'connection')?.toLowerCase() !== 'close';
  }

  const property = fc.asyncProperty(anyRequest(tokens), async (request) => {
    // Each hang takes the full time limit, so stop shrinking early.
    if (hasFailed) triesAfterFailure += 1;
    if (triesAfterFailure > RETRIES_TO_SHRINK) return;
    try {
      await send(request);
    } catch (error: unknown) {
      hasFailed = true;
      throw error;
    }
    onAnswered();
  });
  const details = await fc.check(property, {
    seed,
    numRuns: requests,
    ...(path === undefined ? {} : { path }),
  });
  wire?.destroy();
  if (!details.failed) return { requests: details.numRuns };
  const bytes = JSON.stringify(details.counterexample?.[0].bytes).slice(0, SHOWN);
  const failure = `${String(details.errorInstance)}\n  ${bytes}\n  again: --seed ${seed} --path ${details.counterexamplePath}`;
  return { requests: details.numRuns, failure };
}

/** Checks the responses to bytes without a defined meaning: any number, but none may be a 5xx. */
function assertNoFaults(text: string): void {
  const fault = /(?:^|\n)(HTTP\/1\.1 5(?!01)[^\r]*)/.exec(text)?.[1];
  if (fault !== undefined) throw new Error(fault);
}

function assertNoFault({ status, headers, body }: RawAnswer, isHead: boolean): void {
  // 501 is the right response to an unknown method.
  if (status >= 500 && status !== 501) throw new Error(`${status} ${body.toString()}`);
  if (status < 400 || isHead) return;
  if (headerOf(headers, 'content-type') !== 'application/json') throw new Error(`a ${status} is not JSON`);
  const { error }: { error?: unknown } = JSON.parse(body.toString());
  if (typeof error !== 'number' || Math.floor(error / 100) !== status)
    throw new Error(`a ${status} says ${error}`);
}

interface FuzzedService extends FuzzSummary {
  /**
   * Resident memory in bytes, in the two halves of the requests after the warm-up. The minimum counts: the value
   * after full collections.
   */
  readonly firstMemory: number;
  readonly lastMemory: number;
}

/** Starts a service, fuzzes it, and checks its memory and its log. */
export async function fuzzService(
  options: Omit<FuzzOptions, 'url' | 'tokens' | 'onAnswered'>,
  report: (line: string) => void = () => undefined,
): Promise<FuzzedService> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const tokens = [
    await installation.token('alice'),
    await installation.token('bob'),
    await installation.token('carol', '--scope', 'plants:read'),
  ];
  const service = await installation.serve({
    flags: ['--refused-token-limit', '0'],
    env: { NODE_ENV: 'production', REFUSED_TOKEN_LIMIT: '0' },
    remembers: ({ msg, level }) => msg === 'serving' || Number(level) >= 50,
  });
  const samples: { readonly share: number; readonly memory: number }[] = [];
  const every = Math.max(1, Math.floor(options.requests / 200));
  let answered = 0;
  const onAnswered = (): void => {
    answered += 1;
    if (answered % every !== 0) return;
    const share = answered / options.requests;
    void residentMemory(service).then(
      (memory) => {
        samples.push({ share, memory });
        if (samples.length % 10 === 0)
          report(`${Math.round(share * 100)} %: ${inMebibytes(memory)} resident`);
      },
      () => undefined,
    );
  };
  const summary = await fuzz({ ...options, url: service.url, tokens, onAnswered });
  const { code } = await service.stop();
  const complaints = service.log.filter(({ msg }) => msg !== 'serving').map((line) => JSON.stringify(line));
  return {
    ...summary,
    failures: [
      ...summary.failures,
      ...complaints,
      ...(code === 0 ? [] : [`the service gave exit code ${code}`]),
    ],
    firstMemory: leastMemory(samples.filter(({ share }) => share > WARM_UP && share <= MIDDLE)),
    lastMemory: leastMemory(samples.filter(({ share }) => share > MIDDLE)),
  };
}

function leastMemory(samples: readonly { readonly memory: number }[]): number {
  return Math.min(...samples.map(({ memory }) => memory));
}

/** Formats the result. */
export function describeFuzz({ requests, statuses, firstMemory, lastMemory }: FuzzedService): string[] {
  const counts = [...statuses].sort(([a], [b]) => a - b).map(([status, count]) => `${status}: ${count}`);
  return [
    `${requests} requests; responses to those framed properly: ${counts.join(', ')}`,
    `resident memory after the warm-up: ${inMebibytes(firstMemory)} minimum in the first half, ${inMebibytes(lastMemory)} in the second`,
  ];
}

if (import.meta.main) {
  const values = readFlags(
    'Sends requests that fast-check generates. Looks for a 5xx, a wrong response, a hang, or memory growth.',
    {
      requests: { type: 'string', default: '1000000', about: 'number of requests' },
      connections: { type: 'string', default: '8', about: 'number of connections' },
      seed: seedFlag,
      path: { type: 'string', takes: 'PATH', about: 'path of a failure, to repeat it with its seed' },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const { path } = values;
  const options = {
    requests: Number(values.requests),
    connections: Number(values.connections),
    seed: Number(values.seed ?? newSeed()),
    withinMs: 5_000,
    ...(path === undefined ? {} : { path }),
  };
  write(`seed ${options.seed}`);
  const began = performance.now();
  const summary = await fuzzService(options, write);
  for (const line of describeFuzz(summary)) write(line);
  write(`in ${Math.round((performance.now() - began) / 1_000)} s`);
  const grown =
    summary.requests >= REQUESTS_TO_JUDGE_MEMORY &&
    summary.lastMemory - summary.firstMemory > FUZZ_GROWTH_LIMIT
      ? ['the memory grew over the limit']
      : [];
  for (const failure of [...summary.failures, ...grown]) write(failure);
  if (summary.failures.length + grown.length > 0) process.exitCode = 1;
}
