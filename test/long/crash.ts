import { DatabaseSync } from 'node:sqlite';
import { setTimeout } from 'node:timers/promises';
import { type Answer, Connection } from '../support/clients/keep-alive-client.ts';
import { createRandom } from '../support/data/seeded-random.ts';
import { type Installation, newInstallation, type Service } from '../support/program.ts';
import { newSeed, readFlags, seedFlag } from '../support/script-flags.ts';

const CONNECTIONS = 32;
const IDS_PER_CONNECTION = 20;
const OWNER = 'crash';

interface StoredPlant {
  readonly name: string;
  readonly tag: string | null;
}

/** What the store holds under an id; null for nothing. */
export type State = StoredPlant | null;

interface CrashOptions {
  readonly rounds: number;
  /** Decides all choices of the load, and when it is cut off; not what the clock makes of them. */
  readonly seed: number;
  /** The load lasts from `from` to `to` milliseconds. */
  readonly loadMs: { readonly from: number; readonly to: number };
  /** Writes to be acknowledged in each round before the kill, for machines too slow to get anywhere in that time. */
  readonly atLeast: number;
  readonly report: (line: string) => void;
  /** Called before each comparison, with what is certain of the store: the place to plant a fault. */
  readonly beforeComparison?: (file: string, certain: ReadonlyMap<bigint, State>) => void;
}

interface CrashSummary {
  readonly rounds: number;
  readonly acknowledged: number;
  /** Writes under way at a kill, of which nobody can know what became. */
  readonly doubtful: number;
  /** Creates that were repeated with their key after the crash. */
  readonly repeated: number;
  readonly violations: readonly string[];
}

interface KeyedCreate {
  readonly id: bigint;
  readonly plant: StoredPlant;
  readonly key: string;
}

/** A keyed create to repeat after the crash, and whether the store has carried it out. */
interface Repeat extends KeyedCreate {
  readonly done: boolean;
}

/**
 * Kills the service in the middle of a load, again and again on the same store, and compares what the store then
 * holds with what was acknowledged. Ends with the first round that finds a violation.
 */
export async function crashRounds(options: CrashOptions): Promise<CrashSummary> {
  await using ending = new AsyncDisposableStack();
  const installation = await newInstallation({ after: (work) => ending.defer(work) });
  const token = await installation.token(OWNER);
  const random = createRandom(options.seed);
  const ledger = new Ledger();
  let repeated = 0;
  let round = 0;
  while (round < options.rounds && ledger.violations.length === 0) {
    round += 1;
    const before = ledger.counts();
    const service = await installation.serve({ env: { NODE_ENV: 'production' } });
    const repeats = await repeatKeyed(service, token, ledger);
    const loadMs = await loadAndKill(service, token, ledger, random, options);
    options.beforeComparison?.(installation.file, ledger.certain);
    const kept = compare(installation.file, ledger);
    repeated += repeats;
    options.report(describeRound(round, before, ledger, { loadMs, repeats, kept }));
  }
  if (ledger.violations.length === 0) repeated += await finish(installation, token, ledger);
  const { acknowledged, doubtful } = ledger.counts();
  return { rounds: round, acknowledged, doubtful, repeated, violations: ledger.violations };
}

/** What an id can hold whose last write got no answer. */
interface Doubt {
  readonly before: State;
  readonly after: State;
  readonly keyed: KeyedCreate | undefined;
}

/** What was said to the service and what it said, kept by id: each id belongs to one connection, which waits for answers. */
class Ledger {
  /** What an id must hold; an id nobody wrote to has no entry. */
  readonly certain = new Map<bigint, State>();
  readonly violations: string[] = [];
  /** The keyed creates to repeat once the service is back. */
  repeats: Repeat[] = [];
  readonly #doubtful = new Map<bigint, Doubt>();
  readonly #lastKeyed = new Map<bigint, KeyedCreate>();
  #acknowledged = 0;
  #doubts = 0;
  #awaited = { count: 0, resolve: (): void => undefined };

  counts(): { readonly acknowledged: number; readonly doubtful: number } {
    return { acknowledged: this.#acknowledged, doubtful: this.#doubts };
  }

  stateOf(id: bigint): State {
    return this.certain.get(id) ?? null;
  }

  lastKeyed(firstId: bigint): KeyedCreate | undefined {
    return this.#lastKeyed.get(firstId);
  }

  acknowledge(id: bigint, state: State): void {
    this.#acknowledged += 1;
    this.certain.set(id, state);
    if (this.#acknowledged === this.#awaited.count) this.#awaited.resolve();
  }

  /** Resolves when so many writes are acknowledged, of all rounds; one caller at a time. */
  reaches(count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#awaited = { count, resolve };
    if (this.#acknowledged >= count) resolve();
    return promise;
  }

  remember(firstId: bigint, keyed: KeyedCreate): void {
    this.#lastKeyed.set(firstId, keyed);
  }

  /** The answer to a write never came: the id holds what it held before, or `after`. */
  doubt(id: bigint, after: State, keyed: KeyedCreate | undefined): void {
    this.#doubts += 1;
    this.#doubtful.set(id, { before: this.stateOf(id), after, keyed });
    this.certain.delete(id);
  }

  /** Compares what was found with what must be; from then on, what was found is certain. */
  settle(found: ReadonlyMap<bigint, StoredPlant>): void {
    for (const id of new Set([...this.certain.keys(), ...this.#doubtful.keys(), ...found.keys()])) {
      const state = found.get(id) ?? null;
      const { before, after } = this.#doubtful.get(id) ?? {
        before: this.stateOf(id),
        after: this.stateOf(id),
      };
      if (!isSame(state, before) && !isSame(state, after)) this.violations.push(this.#explain(id, state));
    }
    const doubted = [...this.#doubtful.values()].flatMap(({ keyed }) => (keyed === undefined ? [] : [keyed]));
    this.repeats = [
      ...doubted.map((keyed) => ({ ...keyed, done: found.has(keyed.id) })),
      ...[...this.#lastKeyed.values()].map((keyed) => ({ ...keyed, done: true })),
    ];
    for (const id of this.#doubtful.keys()) this.certain.set(id, found.get(id) ?? null);
    this.#doubtful.clear();
  }

  #explain(id: bigint, found: State): string {
    const doubt = this.#doubtful.get(id);
    if (doubt !== undefined) {
      const { before, after } = doubt;
      return `plant ${id} is ${JSON.stringify(found)} and neither ${JSON.stringify(before)} nor ${JSON.stringify(after)}`;
    }
    const expected = this.certain.get(id);
    if (found === null) return `plant ${id} was created, with an answer, and is missing`;
    if (expected === undefined) return `plant ${id} is there and nobody wrote it`;
    if (expected === null)
      return `plant ${id} was deleted, with an answer, and is there: ${JSON.stringify(found)}`;
    return `plant ${id} is ${JSON.stringify(found)} and was sent as ${JSON.stringify(expected)}`;
  }
}

function isSame(one: State, other: State): boolean {
  return one?.name === other?.name && one?.tag === other?.tag;
}

async function loadAndKill(
  service: Service,
  token: string,
  ledger: Ledger,
  random: () => number,
  { loadMs: { from, to }, atLeast }: CrashOptions,
): Promise<number> {
  const began = performance.now();
  const loadMs = from + random() * (to - from);
  const enough = ledger.reaches(ledger.counts().acknowledged + atLeast);
  const clients = Array.from({ length: CONNECTIONS }, (_, number) =>
    drive({
      connection: new Connection(service.url, token),
      firstId: BigInt(number * IDS_PER_CONNECTION),
      random: createRandom(random() * 2 ** 32),
      ledger,
    }),
  );
  await setTimeout(loadMs);
  await Promise.race([enough, Promise.all(clients)]);
  service.kill('SIGKILL');
  const lasted = performance.now() - began;
  await Promise.all([service.ended, ...clients]);
  return Math.round(lasted);
}

interface Client {
  readonly connection: Connection;
  /** The first of the ids that are its own. */
  readonly firstId: bigint;
  readonly random: () => number;
  readonly ledger: Ledger;
}

/** Creates and deletes, over and over, until the service is gone. */
async function drive(client: Client): Promise<void> {
  const { connection, firstId, random, ledger } = client;
  let isAnswered = true;
  while (isAnswered && ledger.violations.length === 0) {
    isAnswered = await step(client, firstId + BigInt(Math.floor(random() * IDS_PER_CONNECTION)));
  }
  connection.close();
}

function step(client: Client, id: bigint): Promise<boolean> {
  const { firstId, random, ledger } = client;
  const keyed = ledger.lastKeyed(firstId);
  const choice = random();
  if (choice < 0.05 && keyed !== undefined) return repeatInLoad(client, keyed);
  // Now and then a plant that is there is created, and one that is not is deleted.
  const isUsual = choice < 0.85;
  const isThere = ledger.stateOf(id) !== null;
  return isThere === isUsual ? deleteOnce(client, id) : createOnce(client, id);
}

async function deleteOnce({ connection, ledger }: Client, id: bigint): Promise<boolean> {
  const isThere = ledger.stateOf(id) !== null;
  const answer = await connection.delete(id);
  if (answer === undefined) ledger.doubt(id, null, undefined);
  else if (answer.status !== (isThere ? 204 : 404))
    ledger.violations.push(`deleting ${id} gave ${answer.status}`);
  else if (isThere) ledger.acknowledge(id, null);
  return answer !== undefined;
}

async function createOnce({ connection, firstId, random, ledger }: Client, id: bigint): Promise<boolean> {
  const state = ledger.stateOf(id);
  const plant = newPlant(id, random);
  const keyed = state === null && random() < 0.3 ? { id, plant, key: newKey() } : undefined;
  const answer = await connection.create(id, plant, keyed?.key);
  if (answer === undefined) ledger.doubt(id, state ?? plant, keyed);
  else if (answer.status !== (state === null ? 200 : 400))
    ledger.violations.push(`creating ${id} gave ${answer.status}`);
  else if (state === null) ledger.acknowledge(id, plant);
  if (answer !== undefined && keyed !== undefined) ledger.remember(firstId, keyed);
  return answer !== undefined;
}

/** The first answer comes again, whatever became of the plant since; nothing changes. */
async function repeatInLoad(
  { connection, ledger }: Client,
  { id, plant, key }: KeyedCreate,
): Promise<boolean> {
  const answer = await connection.create(id, plant, key);
  if (answer !== undefined && (answer.status !== 200 || !answer.replayed))
    ledger.violations.push(`repeating the create of ${id} with its key gave ${describe(answer)}`);
  return answer !== undefined;
}

function describe(answer: Answer | undefined): string {
  return answer === undefined ? 'no answer' : `${answer.status}${answer.replayed ? ', replayed' : ''}`;
}

/** Repeats creates of before the crash with their keys: each must have happened once, or happen now, and once. */
async function repeatKeyed(service: Service, token: string, ledger: Ledger): Promise<number> {
  await Promise.all(
    ledger.repeats.map(async (repeat) => {
      const connection = new Connection(service.url, token);
      const violation = await repeatOne(connection, ledger, repeat);
      if (violation !== undefined) ledger.violations.push(violation);
      connection.close();
    }),
  );
  return ledger.repeats.length;
}

async function repeatOne(
  connection: Connection,
  ledger: Ledger,
  repeat: Repeat,
): Promise<string | undefined> {
  const { id, plant, key, done } = repeat;
  const first = await connection.create(id, plant, key);
  if (first?.status === 200 && !done) ledger.acknowledge(id, plant);
  const second = await connection.create(id, plant, key);
  if (first?.status === 200 && first.replayed === done && second?.status === 200 && second.replayed)
    return undefined;
  const answers = `${describe(first)} and then ${describe(second)}`;
  return `the create of ${id} with the key ${key}, ${done ? 'done' : 'not done'} before the crash, gave ${answers}`;
}

/** After the last crash: what was in doubt is repeated, the service stops in order, and all is compared again. */
async function finish(installation: Installation, token: string, ledger: Ledger): Promise<number> {
  const service = await installation.serve({ env: { NODE_ENV: 'production' } });
  const repeats = await repeatKeyed(service, token, ledger);
  const { code } = await service.stop();
  if (code !== 0) ledger.violations.push(`the service stopped with exit code ${code}`);
  compare(installation.file, ledger);
  return repeats;
}

/** Compares the file with the ledger and gives the number of plants in it. */
function compare(file: string, ledger: Ledger): number {
  // Reading alone, so that the service too finds the file as the kill left it.
  using db = new DatabaseSync(file, { readOnly: true });
  const integrity = db
    .prepare('PRAGMA integrity_check')
    .all()
    .map((row) => String(row.integrity_check));
  if (integrity.join() !== 'ok') ledger.violations.push(`integrity_check says: ${integrity.join('; ')}`);
  const select = db.prepare('SELECT owner, id, name, tag FROM plants');
  select.setReadBigInts(true);
  const found = new Map<bigint, StoredPlant>();
  for (const { owner, id, name, tag } of select.all()) {
    if (owner !== OWNER || typeof id !== 'bigint') ledger.violations.push(`plant ${id} of ${owner} appeared`);
    else found.set(id, { name: String(name), tag: tag === null ? null : String(tag) });
  }
  ledger.settle(found);
  return found.size;
}

let keysMade = 0;

function newKey(): string {
  keysMade += 1;
  return `create-${keysMade}`;
}

let plantsMade = 0;

/** A plant unlike all others, some long enough to spill over a page of the file. */
function newPlant(id: bigint, random: () => number): StoredPlant {
  plantsMade += 1;
  const name = `${id} of write ${plantsMade}`;
  const length = random() < 0.05 ? 5_000 : random() * 60;
  return {
    name: `${name} ${'Ä🌱x'.repeat(length / 3)}`,
    tag: random() < 0.3 ? null : `tag of write ${plantsMade}`,
  };
}

function describeRound(
  round: number,
  before: { acknowledged: number; doubtful: number },
  ledger: Ledger,
  { loadMs, repeats, kept }: { loadMs: number; repeats: number; kept: number },
): string {
  const { acknowledged, doubtful } = ledger.counts();
  const verdict = ledger.violations.length === 0 ? 'as acknowledged' : ledger.violations.join('; ');
  return (
    `round ${round}: killed after ${loadMs} ms, ${acknowledged - before.acknowledged} writes acknowledged, ` +
    `${doubtful - before.doubtful} in doubt, ${repeats} repeated by key, ${kept} plants: ${verdict}`
  );
}

if (import.meta.main) {
  const values = readFlags(
    'Kills the service in mid-load, again and again on the same store, and compares what that then holds with what was acknowledged.',
    {
      rounds: { type: 'string', default: '1000', about: 'how often it is killed' },
      seed: seedFlag,
    },
  );
  const seed = Number(values.seed ?? newSeed());
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  write(`seed ${seed}`);
  const summary = await crashRounds({
    rounds: Number(values.rounds),
    seed,
    loadMs: { from: 100, to: 600 },
    atLeast: 0,
    report: write,
  });
  write(
    `${summary.rounds} rounds, ${summary.acknowledged} writes acknowledged, ${summary.doubtful} in doubt, ` +
      `${summary.repeated} repeated by key, ${summary.violations.length} violations`,
  );
  if (summary.violations.length > 0) process.exitCode = 1;
}
