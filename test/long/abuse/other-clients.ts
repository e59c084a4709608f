import { setTimeout } from 'node:timers/promises';
import { openWire, type Wire } from '../../support/clients/raw-connection.ts';
import { headerOf } from '../../support/clients/raw-http.ts';
import { type Latencies, latenciesOf } from '../../support/latencies.ts';

/** Well-behaved clients of another owner. */
export interface OthersFigures {
  readonly requests: Latencies;
  /** `/live` of the admin listener. */
  readonly live: Latencies;
  readonly failures: readonly string[];
  readonly sentBytes: number;
}

interface Others {
  /** The number of requests since the last call of `take`. */
  count(): number;
  /** The figures since the last call; pending requests count in the next call. */
  take(): OthersFigures;
  /** Waits for the last responses, and resolves to the figures since the last call. */
  stop(): Promise<OthersFigures>;
}

interface OthersOptions {
  readonly url: string;
  readonly adminUrl: string;
  readonly token: string;
  /** The first id to create. */
  readonly firstId: number;
}

const PAUSE_MS = 5;
/** More than the first bytes of unparsed input, which are not counted. */
const CHUNKED_BYTES = 8_192;
const LIVE_PAUSE_MS = 20;
const ANSWERS_WITHIN_MS = 15_000;
const SHOWN_FAILURES = 5;

/**
 * Sends small requests in closed loops: two connections list, one creates, one creates with a chunked body of 8 KiB, and
 * one opens a connection per list. Each waits for its response and then pauses, so that the load stays constant.
 */
export function startOthers({ url, adminUrl, token, firstId }: OthersOptions): Others {
  const headers = `Host: plants.test\r\nAuthorization: Bearer ${token}\r\n`;
  const list = `GET /plants?limit=20 HTTP/1.1\r\n${headers}\r\n`;
  const live = 'GET /live HTTP/1.1\r\nHost: plants.test\r\n\r\n';
  const state = {
    isStopped: false,
    times: [] as number[],
    liveTimes: [] as number[],
    failures: [] as string[],
    sentBytes: 0,
  };
  let id = firstId;

  function create(): string {
    id += 1;
    const body = `{"id":${id},"name":"Fern"}`;
    return `POST /plants HTTP/1.1\r\n${headers}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  }

  function createInChunks(): string {
    id += 1;
    const body = `{"id":${id},"name":"Fern"}`.padEnd(CHUNKED_BYTES);
    return `POST /plants HTTP/1.1\r\n${headers}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKED_BYTES.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  }

  async function keepAsking(
    target: string,
    next: () => string,
    { isNew = false, pauseMs = PAUSE_MS, isLive = false } = {},
  ): Promise<void> {
    let wire: Wire | undefined;
    while (!state.isStopped) {
      const began = performance.now();
      wire ??= openWire(target);
      const request = next();
      state.sentBytes += request.length;
      const outcome = await askOnce(wire, request);
      (isLive ? state.liveTimes : state.times).push(performance.now() - began);
      if (outcome.failure !== undefined) state.failures.push(outcome.failure);
      if (isNew || outcome.closes) {
        wire.destroy();
        wire = undefined;
      }
      await setTimeout(pauseMs);
    }
    wire?.destroy();
  }

  const asking = Promise.all([
    keepAsking(url, () => list),
    keepAsking(url, () => list),
    keepAsking(url, create),
    keepAsking(url, createInChunks),
    keepAsking(url, () => list, { isNew: true }),
    keepAsking(adminUrl, () => live, { pauseMs: LIVE_PAUSE_MS, isLive: true }),
  ]);

  function take(): OthersFigures {
    const figures = {
      requests: latenciesOf(state.times),
      live: latenciesOf(state.liveTimes),
      failures: state.failures,
      sentBytes: state.sentBytes,
    };
    Object.assign(state, { times: [], liveTimes: [], failures: [], sentBytes: 0 });
    return figures;
  }

  return {
    count: () => state.times.length,
    take,
    stop: async () => {
      state.isStopped = true;
      await asking;
      return take();
    },
  };
}

async function askOnce(wire: Wire, request: string): Promise<{ closes: boolean; failure?: string }> {
  const what = request.slice(0, request.indexOf(' HTTP'));
  try {
    wire.send(request);
    const answer = await wire.answer({ withinMs: ANSWERS_WITHIN_MS });
    if (answer === undefined) return { closes: true, failure: `${what}: closed without a response` };
    const closes = headerOf(answer.headers, 'connection')?.toLowerCase() === 'close';
    return answer.status < 300 ? { closes } : { closes, failure: `${what}: ${answer.status}` };
  } catch (error: unknown) {
    return { closes: true, failure: `${what}: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** Lists the failures with their counts, the most frequent first. */
export function describeFailures(failures: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const failure of failures) counts.set(failure, (counts.get(failure) ?? 0) + 1);
  const sorted = [...counts].toSorted(([, a], [, b]) => b - a).slice(0, SHOWN_FAILURES);
  return sorted.map(([failure, count]) => `${count} × ${failure}`).join('; ');
}
