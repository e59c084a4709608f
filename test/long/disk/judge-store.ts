import { Connection } from '../../support/clients/keep-alive-client.ts';
import { runCommand } from '../../support/run-command.ts';
import { startService } from '../../support/service.ts';
import type { RecordedWrite } from './recorded-writers.ts';

/** Number of the last acknowledged creations with a key that are sent again. */
const REPEATS = 5;

interface Expectation {
  /** All writes in the order of their writers. */
  readonly writes: readonly RecordedWrite[];
  /** Returns true if the response of a write was sent before the store failed. */
  readonly isAcknowledged: (write: RecordedWrite) => boolean;
  /** A token of their owner. */
  readonly token: string;
}

/**
 * Judges a store that a failure left: `check` finds it sound, the service starts on it, lists every acknowledged
 * creation and no acknowledged deletion, and replays acknowledged creations. `untouched` is a second copy of the store,
 * for `check`. Returns what is wrong.
 */
export async function judgeStore(
  file: string,
  untouched: string,
  { writes, isAcknowledged, token }: Expectation,
): Promise<readonly string[]> {
  const faults: string[] = [];
  const isAnyAcknowledged = writes.some(isAcknowledged);
  const check = await checked(untouched);
  // Before the first write no plant can be lost, and a store may not exist yet.
  if (check !== undefined && (isAnyAcknowledged || !check.includes('there is no store'))) faults.push(check);

  const endings: (() => Promise<void>)[] = [];
  const lifetime = { after: (end: () => unknown) => void endings.push(async () => void (await end())) };
  try {
    const service = await startService(lifetime, `sqlite:${file}`);
    const connection = new Connection(service.url, token);
    const answer = await connection.list();
    if (answer?.status === 200) {
      faults.push(...differences(answer.body, writes, isAcknowledged));
      faults.push(...(await replayed(connection, writes.filter(isAcknowledged))));
    } else if (isAnyAcknowledged || answer?.status !== 401) {
      faults.push(`the list gave ${answer?.status} ${answer?.body}`);
    }
    connection.close();
  } catch (error: unknown) {
    faults.push(`the service does not start: ${error instanceof Error ? error.message : error}`);
  } finally {
    for (const end of endings) await end();
  }
  const later = await checked(file);
  if (later !== undefined) faults.push(`after the service: ${later}`);
  return faults;
}

/** Returns what `check` reports; undefined for a sound store. */
async function checked(file: string): Promise<string | undefined> {
  const { code, stdout, stderr } = await runCommand(['check', '--json'], '.', {
    env: { DATABASE_URL: `sqlite:${file}` },
  });
  if (code === 0 && stdout.startsWith('{"sound":true,')) return undefined;
  return `check: ${stdout.trim()} ${stderr.trim()}`;
}

function differences(
  list: string,
  writes: readonly RecordedWrite[],
  isAcknowledged: (write: RecordedWrite) => boolean,
): readonly string[] {
  const found = namesIn(list);
  const faults: string[] = [];
  const allowed = new Map<bigint, (string | null)[]>();
  for (const write of writes) {
    const states = allowed.get(write.id) ?? [null];
    if (isAcknowledged(write)) allowed.set(write.id, [write.name]);
    else allowed.set(write.id, [...states, write.name]);
  }
  for (const [id, name] of found) if (!allowed.has(id)) faults.push(`plant ${id} was never written: ${name}`);
  for (const [id, states] of allowed) {
    const name = found.get(id) ?? null;
    if (!states.includes(name))
      faults.push(`plant ${id} is ${shown(name)} and not ${states.map(shown).join(' or ')}`);
  }
  return faults;
}

/** The names of recorded plants in a list, by id. Throws when an id is listed twice. */
export function namesIn(list: string): ReadonlyMap<bigint, string> {
  const plants: { name: string }[] = JSON.parse(list);
  const names = new Map(plants.map(({ name }) => [BigInt(name.slice(0, name.indexOf(' '))), name]));
  if (names.size < plants.length) throw new Error('a plant is listed twice');
  return names;
}

function shown(name: string | null): string {
  return name === null ? 'absent' : JSON.stringify(name.slice(0, 40));
}

/** Sends the last acknowledged creations with a key again: each must be a replay, whatever was deleted since. */
async function replayed(
  connection: Connection,
  acknowledged: readonly RecordedWrite[],
): Promise<readonly string[]> {
  const faults: string[] = [];
  for (const { id, name, key } of acknowledged.filter((write) => write.key !== undefined).slice(-REPEATS)) {
    const answer = await connection.create(id, { name: name ?? '', tag: null }, key);
    if (answer?.status !== 200 || !answer.replayed)
      faults.push(`the key ${key} of plant ${id} gave ${answer?.status} ${answer?.body}, no replay`);
  }
  return faults;
}
