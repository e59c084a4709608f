import { Connection } from '../../support/clients/keep-alive-client.ts';

const IDS_PER_WRITER = 20;

/** The shares of names that need overflow pages, and that SQLite keeps in a separate table. */
const LONG_NAMES = 0.05;
const LARGE_NAMES = 0.01;

/** A write of a plant, in the order of its writer. Only one writer writes an id. */
export interface RecordedWrite {
  readonly id: bigint;
  /** The name of the plant that it creates; null for a deletion. */
  readonly name: string | null;
  readonly key: string | undefined;
  /** The id of the request whose response acknowledged it. Undefined without such a response. */
  readonly requestId: string | undefined;
  /** Times at which the request was sent and its response had arrived, in milliseconds of `performance.now()`. */
  readonly sentAt: number;
  readonly answeredAt: number;
}

interface Recording {
  readonly writes: readonly RecordedWrite[];
  /** Responses that no correct service sends. */
  readonly surprises: readonly string[];
}

interface WritersOptions {
  readonly url: string;
  readonly token: string;
  readonly writers: number;
  /** The number of writes of all writers together. */
  readonly writes: number;
  readonly random: () => number;
}

/**
 * Creates and deletes plants until the number is reached or the service is gone. A writer sends one request at a time.
 * After a 503 the outcome is unknown, and it continues with the next id.
 */
export async function recordWrites({
  url,
  token,
  writers,
  writes,
  random,
}: WritersOptions): Promise<Recording> {
  const recorded: RecordedWrite[] = [];
  const surprises: string[] = [];
  let left = writes;

  async function write(connection: Connection, ids: Map<bigint, string | null>): Promise<boolean> {
    const candidates = [...ids.keys()];
    const id = candidates[Math.floor(random() * candidates.length)];
    if (id === undefined) return false;
    const serial = left;
    const isCreation = ids.get(id) === null;
    const name = isCreation ? nameOf(id, serial, random) : null;
    const key = isCreation && random() < 0.3 ? `write-${serial}` : undefined;
    const sentAt = performance.now();
    const answer =
      name === null ? await connection.delete(id) : await connection.create(id, { name, tag: null }, key);
    const isDone = answer?.status === (isCreation ? 200 : 204);
    const requestId = isDone ? answer.requestId : undefined;
    recorded.push({ id, name, key, requestId, sentAt, answeredAt: performance.now() });
    if (isDone) ids.set(id, name);
    else ids.delete(id);
    if (!isDone && answer !== undefined && answer.status !== 503)
      surprises.push(`${name === null ? 'deleting' : 'creating'} ${id} gave ${answer.status} ${answer.body}`);
    return answer !== undefined;
  }

  async function run(number: number): Promise<void> {
    const connection = new Connection(url, token);
    const ids = Array.from({ length: IDS_PER_WRITER }, (_, index) => BigInt(number * IDS_PER_WRITER + index));
    const states = new Map(ids.map((id): [bigint, string | null] => [id, null]));
    while (left > 0) {
      left -= 1;
      if (!(await write(connection, states))) break;
    }
    connection.close();
  }

  await Promise.all(Array.from({ length: writers }, (_, number) => run(number)));
  return { writes: recorded, surprises };
}

/** A name with the id, which lists do not show. */
function nameOf(id: bigint, serial: number, random: () => number): string {
  const choice = random();
  const length = choice < LARGE_NAMES ? 13_500 : choice < LARGE_NAMES + LONG_NAMES ? 4_000 : random() * 60;
  return `${id} of write ${serial} ${'Ä🌱x'.repeat(length / 3)}`;
}
