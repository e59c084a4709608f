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

/** The stored value of an id; null for nothing. */
export type State = StoredPlant | null;

interface CrashOptions {
  readonly rounds: number;
  /** The seed of all choices of the load and of the time of the kill; the clock still varies. */
  readonly seed: number;
  /** The range of the load's duration in milliseconds. */
  readonly loadMs: { readonly from: number; readonly to: number };
  /** Min number of acknowledged writes per round before the kill, for slow machines. */
  readonly atLeast: number;
  readonly report: (line: string) => void;
  /** Called before each comparison with the certain contents of the store; a test plants a fault here. */
  readonly beforeComparison?: (file: string, certain: ReadonlyMap<bigint, State>) => void;
}

interface CrashSummary {
  readonly rounds: number;
  readonly acknowledged: number;
  /** Writes in flight at a kill, whose outcome is unknown. */
  readonly doubtful: number;
  /** Creates that were retried with their key after the crash. */
  readonly repeated: number;
  readonly violations: readonly string[];
}

interface KeyedCreate {
  readonly id: bigint;
  readonly plant: StoredPlant;
  readonly key: string;
}

/** A keyed create to retry after the crash, and whether the store executed it. */
interface Repeat extends KeyedCreate {
  readonly done: boolean;
}

/**
 * Repeatedly kills the service under load on the same store, and compares the store with the acknowledged writes.
 * Ends at the first round with a violation.
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

/** The possible values of an id whose last write got no response. */
interface Doubt {
  readonly before: State;
  readonly after: State;
  readonly keyed: KeyedCreate | undefined;
}

/** The requests and responses by id. Each id belongs to one connection, which waits for its responses. */
class Ledger {
  /** The required value of each written id; other ids have no entry. */
  readonly certain = new Map<bigint, State>();
  readonly violations: string[] = [];
  /** The keyed creates to retry after the restart. */
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

  /** Resolves when this many writes are acknowledged, over all rounds; one caller at a time. */
  reaches(count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#awaited = { count, resolve };
    if (this.#acknowledged >= count) resolve();
    return promise;
  }

  remember(firstId: bigint, keyed: KeyedCreate): void {
    this.#lastKeyed.set(firstId, keyed);
  }

  /** Records a write without a response: the id holds its previous value, or `after`. */
  doubt(id: bigint, after: State, keyed: KeyedCreate | undefined): void {
    this.#doubts += 1;
    this.#doubtful.set(id, { before: this.stateOf(id), after, keyed });
    this.certain.delete(id);
  }

  /** Compares the store with the expectation. From then on the found values are certain. */
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
    if (found === null) return `plant ${id} was acknowledged as created, and is missing`;
    if (expected === undefined) return `plant ${id} exists and was never written`;
    if (expected === null)
      return `plant ${id} was acknowledged as deleted, and exists: ${JSON.stringify(found)}`;
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
  /** The first id of this connection. */
  readonly firstId: bigint;
  readonly random: () => number;
  readonly ledger: Ledger;
}

/** Creates and deletes in a loop until the service is gone. */
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
  // Sometimes creates an existing plant, or deletes an absent one.
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

/** Expects the first response again, whatever happened to the plant since; the retry changes nothing. */
async function repeatInLoad(
  { connection, ledger }: Client,
  { id, plant, key }: KeyedCreate,
): Promise<boolean> {
  const answer = await connection.create(id, plant, key);
  if (answer !== undefined && (answer.status !== 200 || !answer.replayed))
    ledger.violations.push(`retrying the create of ${id} with its key gave ${describe(answer)}`);
  return answer !== undefined;
}

function describe(answer: Answer | undefined): string {
  return answer === undefined ? 'no answer' : `${answer.status}${answer.replayed ? ', replayed' : ''}`;
}

/** Retries the keyed creates from before the crash: each must have executed exactly once, before or now. */
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

/** After the last crash: retries the writes in doubt, stops the service gracefully, and compares again. */
async function finish(installation: Installation, token: string, ledger: Ledger): Promise<number> {
  const service = await installation.serve({ env: { NODE_ENV: 'production' } });
  const repeats = await repeatKeyed(service, token, ledger);
  const { code } = await service.stop();
  if (code !== 0) ledger.violations.push(`the service stopped with exit code ${code}`);
  compare(installation.file, ledger);
  return repeats;
}

/** Compares the file with the ledger. Returns the number of plants in it. */
function compare(file: string, ledger: Ledger): number {
  // Opens the file read-only, so that the service finds it unchanged after the kill.
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

/** Creates a unique plant; some are long enough to need overflow pages. */
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
    `${doubtful - before.doubtful} in doubt, ${repeats} retried by key, ${kept} plants: ${verdict}`
  );
}

if (import.meta.main) {
  const values = readFlags(
    'Repeatedly kills the service under load on the same store, and compares the store with the acknowledged writes.',
    {
      rounds: { type: 'string', default: '1000', about: 'number of kills' },
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
      `${summary.repeated} retried by key, ${summary.violations.length} violations`,
  );
  if (summary.violations.length > 0) process.exitCode = 1;
}
