import { get, type IncomingMessage } from 'node:http';
import { type Answer, Connection } from '../support/clients/keep-alive-client.ts';
import { execute } from '../support/engines.ts';
import { describeLatencies, type Latencies, latenciesOf } from '../support/latencies.ts';
import {
  inMebibytes,
  MEBIBYTE,
  peakMemory,
  resetPeakMemory,
  residentMemory,
} from '../support/process-resources.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { readFlags } from '../support/script-flags.ts';
import { bearer } from '../support/service.ts';

export const GROWTH_LIMIT = 64 * MEBIBYTE;
const LATENCY_LIMIT_MS = 50;

interface LongListFigures {
  /** The number of plants received in order and without a gap, up to the first wrong one. */
  readonly plants: number;
  readonly bytes: number;
  readonly listMs: number;
  /** Resident memory of the service before the list and its peak during it, in bytes. */
  readonly before: number;
  readonly peak: number;
  /** Response times of other requests during the list, in milliseconds. */
  readonly lists: Latencies;
  readonly creates: Latencies;
}

/** Creates many plants of an owner. The ids spread over the whole range, and the names count from 0 in id order. */
export async function fillStore(
  url: string,
  owner: string,
  plants: number,
  nameLength: number,
): Promise<void> {
  const counted = url.startsWith('sqlite:')
    ? `WITH RECURSIVE counted (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ${plants})`
    : `WITH counted (n) AS (SELECT * FROM generate_series(0::bigint, ${plants - 1}))`;
  const ending = ` ${'of very many '.repeat(Math.ceil(nameLength / 13))}`;
  await execute(
    url,
    `${counted}
     INSERT INTO plants (owner, id, name, tag)
     SELECT '${owner}', (n - ${plants} / 2) * (9000000000000000000 / ${plants}),
            substr(n || '${ending}', 1, ${nameLength}),
            CASE n % 3 WHEN 0 THEN NULL ELSE 'tag ' || n % 1000 END
       FROM counted`,
  );
}

interface ListedPlants {
  readonly nameLength: number;
  readonly times: number;
  /** The URL of a new store; SQLite by default. */
  readonly databaseUrl?: string;
  /** Environment variables of the service. */
  readonly variables?: Readonly<Record<string, string>>;
}

/**
 * Lists many plants of one owner without a limit, several times in a row. Measures the cost for the service and its
 * other clients.
 */
export async function measureLongList(
  plants: number,
  { nameLength, times, databaseUrl, variables }: ListedPlants,
): Promise<LongListFigures> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const url = databaseUrl ?? installation.databaseUrl;
  const token = await installation.token('alice', '--database-url', url);
  await fillStore(url, 'alice', plants, nameLength);
  const env = { ...variables, NODE_ENV: 'production', DATABASE_URL: url };
  const service = await installation.serve({ env });
  const before = await residentMemory(service);
  await resetPeakMemory(service);
  const others = await startOthers(service, await installation.token('bob', '--database-url', url));
  const began = performance.now();
  const bodies: Buffer[] = [];
  for (let time = 0; time < times; time += 1) bodies.push(await readList(service, token));
  const listMs = (performance.now() - began) / times;
  const { lists, creates } = await others.stop();
  const peak = await peakMemory(service);
  // Verify only now, so that the service has the cores during the measurement.
  const counts = bodies.map((body) => countInOrder(body.toString()));
  const count = counts.find((one) => one !== plants) ?? plants;
  return { plants: count, bytes: bodies[0]?.length ?? 0, listMs, before, peak, lists, creates };
}

async function readList(service: Service, token: string): Promise<Buffer> {
  const response = await startList(service, token);
  if (response.statusCode !== 200) throw new Error(`the list gave ${response.statusCode}`);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Requests a list without a limit on a separate connection. Resolves before the body is read. */
export function startList({ url }: Service, token: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    get(`${url}/plants`, { agent: false, headers: bearer(token) }, resolve).on('error', reject);
  });
}

/** Counts the plants of a list that are in their place, up to the first that is not. */
function countInOrder(json: string): number {
  const plants: readonly { readonly name: string }[] = JSON.parse(json);
  const wrong = plants.findIndex(({ name }, index) => Number.parseInt(name, 10) !== index);
  return wrong < 0 ? plants.length : wrong;
}

interface Others {
  stop(): Promise<{ lists: Latencies; creates: Latencies }>;
}

/** Number of ignored first requests: a process is slower at first, with or without a list. */
const UNMEASURED = 50;

/**
 * Sends small requests of another owner on two connections, one after the other: lists of 20, and creates. Resolves
 * after the first responses.
 */
async function startOthers(service: Service, token: string): Promise<Others> {
  let isStopped = false;

  function measure(send: (number: bigint) => Promise<Answer | undefined>) {
    const warm = Promise.withResolvers<void>();
    async function sendAll(): Promise<Latencies> {
      const times: number[] = [];
      for (let number = 0n; !isStopped; number += 1n) {
        const began = performance.now();
        const answer = await send(number);
        times.push(performance.now() - began);
        if (answer?.status !== 200)
          throw new Error(`a request during the list got ${answer?.status ?? 'no response'}`);
        if (times.length === UNMEASURED) warm.resolve();
      }
      return latenciesOf(times.slice(UNMEASURED));
    }
    return { warm: warm.promise, latencies: sendAll() };
  }

  const lister = new Connection(service.url, token);
  const creator = new Connection(service.url, token);
  const lists = measure(() => lister.list(20));
  const creates = measure((id) => creator.create(id, { name: `plant ${id}`, tag: null }));
  await Promise.race([Promise.all([lists.warm, creates.warm]), lists.latencies, creates.latencies]);
  return {
    stop: async () => {
      isStopped = true;
      const results = { lists: await lists.latencies, creates: await creates.latencies };
      lister.close();
      creator.close();
      return results;
    },
  };
}

/** Formats the figures. */
export function describeFigures(figures: LongListFigures): string[] {
  const { plants, bytes, listMs, before, peak, lists, creates } = figures;
  return [
    `${plants} plants in order, ${inMebibytes(bytes)}, in ${Math.round(listMs)} ms`,
    `resident memory: ${inMebibytes(before)} before, ${inMebibytes(peak)} at peak, +${inMebibytes(peak - before)}`,
    `listPlants with limit 20 during the list: ${describeLatencies(lists)}`,
    `createPlant meanwhile: ${describeLatencies(creates)}`,
  ];
}

if (import.meta.main) {
  const values = readFlags(
    'Reads a long list. Checks it, and measures the response times of others and the memory growth.',
    { plants: { type: 'string', default: '1000000', about: 'number of plants' } },
  );
  const wanted = Number(values.plants);
  const figures = await measureLongList(wanted, { nameLength: 20, times: 3 });
  const wrong = [
    ...(figures.plants === wanted ? [] : [`the list is correct only up to plant ${figures.plants}`]),
    ...(figures.peak - figures.before < GROWTH_LIMIT ? [] : ['the memory grew over the limit']),
    ...(Math.max(figures.lists.p99, figures.creates.p99) < LATENCY_LIMIT_MS
      ? []
      : ['other requests took too long']),
  ];
  process.stdout.write([...describeFigures(figures), ...wrong, ''].join('\n'));
  if (wrong.length > 0) process.exitCode = 1;
}
