import fc from 'fast-check';
import { openWire, type Wire } from '../support/clients/raw-connection.ts';
import { headerOf, type RawAnswer } from '../support/clients/raw-http.ts';
import { inMebibytes, MEBIBYTE, residentMemory } from '../support/process-resources.ts';
import { newInstallation } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';
import { anyRequest, type FuzzedRequest } from './fuzz-requests.ts';

interface FuzzOptions {
  /** Where the service is. */
  readonly url: string;
  /** Tokens that open something. */
  readonly tokens: readonly string[];
  readonly requests: number;
  readonly connections: number;
  /** Decides all requests. */
  readonly seed: number;
  /** Where in the requests of one connection to begin: what a failure printed. */
  readonly path?: string;
  /** How long an answer may take. */
  readonly withinMs: number;
  /** Called after each request. */
  readonly onAnswered?: () => void;
}

interface FuzzSummary {
  readonly requests: number;
  /** How often each status came in answer to a request that was framed properly. */
  readonly statuses: ReadonlyMap<number, number>;
  /** What went wrong, with the smallest request that does it and how to send it again. */
  readonly failures: readonly string[];
}

/** Growth of the resident memory from the first to the second half that is no leak; with fewer requests it is warming up. */
const FUZZ_GROWTH_LIMIT = 32 * MEBIBYTE;

const REQUESTS_TO_JUDGE_MEMORY = 500_000;
const RETRIES_TO_SHRINK = 100;
const SHOWN = 2_000;

/** Sends requests that fast-check makes up, on some connections at once, and checks that each is answered as it should. */
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
    if (used.surplus() > 0) throw new Error('something came that nobody asked for');
    used.send(bytes);
    if (!isWhole) {
      used.end();
      refuseFaults((await used.rest(withinMs)).toString('latin1'));
      return false;
    }
    const answer = await used.answer({ toHead: isHead, withinMs });
    if (answer === undefined) throw new Error('the connection was closed without an answer');
    refuseFault(answer, isHead);
    statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
    return headerOf(answer.headers, 'connection')?.toLowerCase() !== 'close';
  }

  const property = fc.asyncProperty(anyRequest(tokens), async (request) => {
    // Each hang takes its time; the request need not become the smallest there is.
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

/** Answers to what nobody could understand: however many there are, none of them may be a fault of the service. */
function refuseFaults(text: string): void {
  const fault = /(?:^|\n)(HTTP\/1\.1 5(?!01)[^\r]*)/.exec(text)?.[1];
  if (fault !== undefined) throw new Error(fault);
}

function refuseFault({ status, headers, body }: RawAnswer, isHead: boolean): void {
  // An unknown method is not implemented.
  if (status >= 500 && status !== 501) throw new Error(`${status} ${body.toString()}`);
  if (status < 400 || isHead) return;
  if (headerOf(headers, 'content-type') !== 'application/json') throw new Error(`a ${status} is not JSON`);
  const { error }: { error?: unknown } = JSON.parse(body.toString());
  if (typeof error !== 'number' || Math.floor(error / 100) !== status)
    throw new Error(`a ${status} says ${error}`);
}

interface FuzzedService extends FuzzSummary {
  /** Resident memory in bytes, in the first half of the requests (but for a tenth) and in the second: the least, which is what full collections leave. */
  readonly firstMemory: number;
  readonly lastMemory: number;
}

/** Starts a service of its own, fuzzes it, and looks at its memory and its log. */
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
      ...(code === 0 ? [] : [`it ended with exit code ${code}`]),
    ],
    firstMemory: leastMemory(samples.filter(({ share }) => share > 0.1 && share <= 0.5)),
    lastMemory: leastMemory(samples.filter(({ share }) => share > 0.5)),
  };
}

function leastMemory(samples: readonly { readonly memory: number }[]): number {
  return Math.min(...samples.map(({ memory }) => memory));
}

/** For people. */
export function describeFuzz({ requests, statuses, firstMemory, lastMemory }: FuzzedService): string[] {
  const counts = [...statuses].sort(([a], [b]) => a - b).map(([status, count]) => `${status}: ${count}`);
  return [
    `${requests} requests; answers to those framed properly: ${counts.join(', ')}`,
    `resident memory: ${inMebibytes(firstMemory)} at least in the first half, ${inMebibytes(lastMemory)} in the second`,
  ];
}

if (import.meta.main) {
  const values = readFlags(
    'Sends requests that fast-check makes up, and looks for a 5xx, a wrong answer, a hang, or memory that grows.',
    {
      requests: { type: 'string', default: '1000000', about: 'how many are sent' },
      connections: { type: 'string', default: '8', about: 'over how many connections at once' },
      seed: seedFlag,
      path: { type: 'string', takes: 'PATH', about: 'that of a failure, to send it again with its seed' },
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
      ? ['the memory grew too much']
      : [];
  for (const failure of [...summary.failures, ...grown]) write(failure);
  if (summary.failures.length + grown.length > 0) process.exitCode = 1;
}
