import { randomUUID } from 'node:crypto';
import type { TestContext } from 'node:test';
import { encodeCursor } from '../../src/http/plants/cursor.ts';
import { describeViolation, type Effect, findViolation, type Operation } from '../support/linearizability.ts';
import { readFlags } from '../support/script-flags.ts';
import { startPostgres } from '../support/servers/postgres-server.ts';
import { bearer } from '../support/service.ts';
import {
  type Addressed,
  type Answer,
  Client,
  createToken,
  type Question,
  startInstances,
  stopInOrder,
} from '../support/service-instances.ts';

interface Workload {
  /** The addresses of one store; the requests rotate over them. */
  readonly fronts: readonly Addressed[];
  readonly token: string;
  /** Number of clients. Each has one request in flight, and several while it checks all fronts. */
  readonly clients: number;
  /** Plants that all clients repeatedly create, delete and list. */
  readonly hotPlants: number;
  readonly seconds: number;
  /** Min number of observations, regardless of the time. */
  readonly atLeast?: number;
}

export interface Recording {
  readonly operations: readonly Operation[];
  /** Acknowledged writes to cold plants that were missing from a list of some instance right afterwards. */
  readonly unseen: readonly string[];
  /** Unexpected responses. */
  readonly surprises: readonly string[];
  readonly requests: number;
  /** Response times in milliseconds. */
  readonly times: Readonly<Record<'hotWrites' | 'coldWrites' | 'lists', readonly number[]>>;
}

/** Above all hot ids, so that a list limited to the number of hot plants shows all of these. */
const FIRST_COLD_ID = 1_000_000n;

/** Share of the operations that use hot plants. */
const HOT_SHARE = 0.7;

/** Runs clients that create, delete and list plants for a while. Records what each of them saw. */
export async function recordWorkload(workload: Workload): Promise<Recording> {
  const recorder = new Recorder(workload);
  try {
    await Promise.all(Array.from({ length: workload.clients }, () => recorder.runClient()));
    return recorder;
  } finally {
    recorder.close();
  }
}

class Recorder implements Recording {
  readonly operations: Operation[] = [];
  readonly unseen: string[] = [];
  readonly surprises: string[] = [];
  readonly times = { hotWrites: [] as number[], coldWrites: [] as number[], lists: [] as number[] };
  requests = 0;
  readonly #client = new Client();
  readonly #workload: Workload;
  readonly #until: number;
  #serial = 0;

  constructor(workload: Workload) {
    this.#workload = workload;
    this.#until = performance.now() + workload.seconds * 1_000;
  }

  async runClient(): Promise<void> {
    const { atLeast = 0 } = this.#workload;
    while (performance.now() < this.#until || this.operations.length < atLeast) {
      if (Math.random() < HOT_SHARE) await this.#touchHotPlant();
      else await this.#visitColdPlant();
    }
  }

  close(): void {
    this.#client.close();
  }

  async #touchHotPlant(): Promise<void> {
    const id = BigInt(1 + Math.floor(Math.random() * this.#workload.hotPlants));
    const draw = Math.random();
    if (draw < 0.4) await this.#createPlant(id, this.times.hotWrites);
    else if (draw < 0.8) await this.#deletePlant(id, this.times.hotWrites);
    else await this.#listHotPlants();
  }

  /** Creates a plant and deletes it. After each acknowledgement, checks the list of every front. */
  async #visitColdPlant(): Promise<void> {
    this.#serial += 1;
    const id = FIRST_COLD_ID + BigInt(this.#serial);
    const created = await this.#createPlant(id, this.times.coldWrites);
    if (created === 'created') await this.#lookEverywhere(id, true);
    const deleted = await this.#deletePlant(id, this.times.coldWrites);
    if (deleted === 'deleted') await this.#lookEverywhere(id, false);
  }

  async #lookEverywhere(id: bigint, expected: boolean): Promise<void> {
    await Promise.all(this.#workload.fronts.map((front) => this.#look(front, id, expected)));
  }

  async #createPlant(id: bigint, times: number[]): Promise<Effect['kind']> {
    this.#serial += 1;
    const name = `${id}/${this.#serial}`;
    const body = `{"id":${id},"name":"${name}"}`;
    // Half of them carry a unique idempotency key, which must change nothing.
    const idempotency = this.#serial % 2 === 0 ? { 'idempotency-key': randomUUID() } : {};
    const headers = { 'content-type': 'application/json', ...idempotency };
    const { answer, sentAt } = await this.#ask({ method: 'POST', path: '/plants', headers, body }, times);
    const effect = this.#effectOfCreation(answer, name);
    this.#record(id, sentAt, effect);
    return effect.kind;
  }

  #effectOfCreation(answer: Answer, name: string): Effect {
    if (answer.status === 200) return { kind: 'created', name };
    if (answer.status === 400 && answer.body.includes('40002')) return { kind: 'idTaken' };
    this.#noteSurprise(answer);
    return { kind: 'unknownCreation', name };
  }

  async #deletePlant(id: bigint, times: number[]): Promise<Effect['kind']> {
    const { answer, sentAt } = await this.#ask({ method: 'DELETE', path: `/plants/${id}` }, times);
    const effect = this.#effectOfDeletion(answer);
    this.#record(id, sentAt, effect);
    return effect.kind;
  }

  #effectOfDeletion(answer: Answer): Effect {
    if (answer.status === 204) return { kind: 'deleted' };
    if (answer.status === 404) return { kind: 'absent' };
    this.#noteSurprise(answer);
    return { kind: 'unknownDeletion' };
  }

  /** One list is an observation of every hot plant. */
  async #listHotPlants(): Promise<void> {
    const { hotPlants } = this.#workload;
    const path = `/plants?limit=${hotPlants}`;
    const { answer, sentAt } = await this.#ask({ method: 'GET', path }, this.times.lists);
    const names = this.#namesIn(answer);
    if (names === undefined) return;
    for (let id = 1n; id <= hotPlants; id += 1n) {
      this.#record(id, sentAt, { kind: 'listed', name: names.find((name) => name.startsWith(`${id}/`)) });
    }
  }

  /** Lists from the id of the plant on; only this plant has its name. */
  async #look(front: Addressed, id: bigint, expected: boolean): Promise<void> {
    const path = `/plants?limit=1&cursor=${encodeCursor(id - 1n)}`;
    const { answer, sentAt } = await this.#ask({ method: 'GET', path }, this.times.lists, front);
    const names = this.#namesIn(answer);
    if (names === undefined) return;
    const name = names.find((one) => one.startsWith(`${id}/`));
    this.#record(id, sentAt, { kind: 'listed', name });
    if ((name !== undefined) !== expected)
      this.unseen.push(`${front.url}: ${id} ${expected ? 'missing' : 'shown'}`);
  }

  #namesIn(answer: Answer): string[] | undefined {
    if (answer.status !== 200) {
      this.#noteSurprise(answer);
      return undefined;
    }
    const plants: { name: string }[] = JSON.parse(answer.body);
    return plants.map(({ name }) => name);
  }

  async #ask(
    question: Question,
    times: number[],
    front = this.#nextFront(),
  ): Promise<{ answer: Answer; sentAt: number }> {
    const headers = { ...bearer(this.#workload.token), ...question.headers };
    const sentAt = performance.now();
    const answer = await this.#client.ask(front, { ...question, headers });
    times.push(performance.now() - sentAt);
    return { answer, sentAt };
  }

  #nextFront(): Addressed {
    const { fronts } = this.#workload;
    const front = fronts[this.requests % fronts.length];
    if (front === undefined) throw new Error('the workload has no front');
    this.requests += 1;
    return front;
  }

  #record(id: bigint, sentAt: number, effect: Effect): void {
    this.operations.push({ key: id.toString(), effect, sentAt, answeredAt: performance.now() });
  }

  #noteSurprise({ status, body }: Answer): void {
    this.surprises.push(`${status} ${body}`);
  }
}

/** Returns the value at a quantile. */
function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Formats a recording in a few lines. */
export function describeRecording({ operations, requests, unseen, surprises, times }: Recording): string {
  const rows = Object.entries(times).map(([kind, values]) => {
    const [median, high, worst] = [0.5, 0.99, 1].map((share) => quantile(values, share).toFixed(1));
    return `${kind}: ${values.length}, ms: median ${median}, 99 % ${high}, worst ${worst}`;
  });
  return [
    `${requests} requests, ${operations.length} observations of ${new Set(operations.map(({ key }) => key)).size} plants`,
    ...rows,
    `acknowledged writes missing from the next list: ${unseen.length}; unexpected answers: ${surprises.length}`,
  ].join('\n');
}

/** The recordings of clients of several owners, each with its own plants. */
function joinRecordings(recordings: readonly Recording[]): Recording {
  const times = (kind: keyof Recording['times']): readonly number[] =>
    recordings.flatMap((recording) => recording.times[kind]);
  return {
    operations: recordings.flatMap(({ operations }, owner) =>
      operations.map((operation) => ({ ...operation, key: `${owner}/${operation.key}` })),
    ),
    unseen: recordings.flatMap(({ unseen }) => unseen),
    surprises: recordings.flatMap(({ surprises }) => surprises),
    requests: recordings.reduce((sum, { requests }) => sum + requests, 0),
    times: { hotWrites: times('hotWrites'), coldWrites: times('coldWrites'), lists: times('lists') },
  };
}

interface HistoryOptions {
  readonly url: string;
  readonly instances: number;
  /** Number of concurrent clients, divided equally among the owners. */
  readonly clients: number;
  readonly owners: number;
  /** Contended plants per owner. */
  readonly hotPlants: number;
  readonly seconds: number;
}

/** Runs the workload of several owners on new instances of one store. */
export async function recordHistory(
  t: Pick<TestContext, 'after'>,
  { url, instances, clients, owners, hotPlants, seconds }: HistoryOptions,
): Promise<Recording> {
  const fronts = await startInstances(t, url, instances);
  // Use new owners each time, since an existing database may hold plants of an earlier run.
  const run = randomUUID();
  const recordings = await Promise.all(
    Array.from({ length: owners }, async (_, index) => {
      const { secret } = await createToken(url, `${run}.${index}`);
      return recordWorkload({
        fronts,
        token: secret,
        clients: Math.ceil(clients / owners),
        hotPlants,
        seconds,
      });
    }),
  );
  await stopInOrder(fronts);
  return joinRecordings(recordings);
}

/** Returns the faults of a recording: it must be linearizable, and have no late write or unexpected response. */
export function judgeHistory({ operations, unseen, surprises }: Recording): readonly string[] {
  const violation = findViolation(operations);
  return [...(violation === undefined ? [] : [describeViolation(violation)]), ...unseen, ...surprises];
}

/** Starts instances, runs the workload, judges the history and reports. */
async function main(): Promise<boolean> {
  const values = readFlags(
    'Loads instances on one PostgreSQL, and checks that the history of their responses is linearizable.',
    {
      seconds: { type: 'string', default: '30', about: 'how long' },
      clients: { type: 'string', default: '32', about: 'number of concurrent clients' },
      owners: { type: 'string', default: '1', about: 'number of owners; the clients are divided equally' },
      instances: { type: 'string', default: '3', about: 'number of instances on the store' },
      'hot-plants': {
        type: 'string',
        default: '8',
        about: 'contended plants per owner',
      },
      'database-url': {
        type: 'string',
        takes: 'URL',
        about: 'URL of the store, instead of a new PostgreSQL',
      },
    },
  );
  const releases: (() => unknown)[] = [];
  const scope = { after: (release: () => unknown) => void releases.unshift(release) };
  try {
    const url = values['database-url'] ?? (await startOwnServer(scope));
    const recording = await recordHistory(scope, {
      url,
      instances: Number(values.instances),
      clients: Number(values.clients),
      owners: Number(values.owners),
      hotPlants: Number(values['hot-plants']),
      seconds: Number(values.seconds),
    });
    const judged = performance.now();
    const faults = judgeHistory(recording);
    process.stdout.write(`judged in ${(performance.now() - judged).toFixed(0)} ms\n`);
    process.stdout.write(`${describeRecording(recording)}\n`);
    process.stdout.write(`${faults.length === 0 ? 'linearizable' : faults.join('\n')}\n`);
    return faults.length === 0;
  } finally {
    for (const release of releases) await release();
  }
}

async function startOwnServer(t: { after(release: () => unknown): void }): Promise<string> {
  const server = await startPostgres();
  t.after(() => server.remove());
  return server.url();
}

if (import.meta.main) process.exitCode = (await main()) ? 0 : 1;
