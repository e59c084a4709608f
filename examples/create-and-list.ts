import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';

/**
 * Creates the plants of plants.ndjson, lists them in pages of 100, compares them with the file and deletes them.
 *
 *   npx node examples/create-and-list.ts URL TOKEN
 */

interface Plant {
  readonly name: string;
  readonly tag?: string;
}

const CONCURRENCY = 16;

const [url, token] = process.argv.slice(2);
if (!url || !token) {
  process.stderr.write('usage: npx node examples/create-and-list.ts URL TOKEN\n');
  process.exit(1);
}
const authorization = { authorization: `Bearer ${token}` };
const plants = `${url}/plants`;

const text = await readFile(new URL('./plants.ndjson', import.meta.url), 'utf8');
const lines = text.trimEnd().split('\n');

const run = randomUUID();

// On Ctrl-C, requests in flight finish and created plants are deleted. A second Ctrl-C ends the program.
const stop = new AbortController();
process.once('SIGINT', () => stop.abort(new Error('stopped')));

try {
  const [first] = await listAll(`${plants}?limit=1`, 1);
  if (first !== undefined) throw new Error('this owner has plants; use the token of an owner without plants');
  await createListAndDelete();
} catch (failure: unknown) {
  process.stderr.write(`${reasonOf(failure)}\n`);
  process.exitCode = 1;
}

async function createListAndDelete(): Promise<void> {
  const sent: string[] = [];
  try {
    // Sends the lines unchanged: JSON.parse would round an id beyond 2^53.
    await forEach(lines, async (line, index) => {
      stop.signal.throwIfAborted();
      const key = { 'content-type': 'application/json', 'idempotency-key': `${run}-${index}` };
      sent.push(line);
      const request = { method: 'POST', headers: { ...authorization, ...key }, body: line };
      await expectOk(await fetch(plants, request));
    });
    say(`created ${lines.length} plants`);

    const listed = await listAll(`${plants}?limit=100`);
    const wanted = lines.map(
      (line): Plant => JSON.parse(line, (key, value) => (key === 'id' ? undefined : value)),
    );
    if (JSON.stringify(listed) !== JSON.stringify(wanted))
      throw new Error('the list differs from the created plants');
    say(`listed ${listed.length} plants in pages of 100, equal to the file`);
  } finally {
    await deleteAll(sent);
  }
}

/** Deletes all plants that were sent. A plant that was not created gets 404. */
async function deleteAll(sent: readonly string[]): Promise<void> {
  let deleted = 0;
  await forEach(sent, async (line) => {
    const id = /"id":(-?\d+)/.exec(line)?.[1];
    const response = await fetch(`${plants}/${id}`, { method: 'DELETE', headers: authorization });
    if (response.status === 404) return;
    await expectOk(response);
    deleted += 1;
  });
  say(`deleted ${deleted} plants`);
}

/** Follows the `Link` headers (RFC 8288) from page to page, until it has `enough` plants. */
async function listAll(first: string, enough = Number.POSITIVE_INFINITY): Promise<Plant[]> {
  const plants: Plant[] = [];
  for (let next: string | undefined = first; next !== undefined && plants.length < enough; ) {
    stop.signal.throwIfAborted();
    const response: Response = await expectOk(await fetch(next, { headers: authorization }));
    plants.push(...((await response.json()) as Plant[]));
    const target: string | undefined = /<([^>]+)>; rel="next"/.exec(response.headers.get('link') ?? '')?.[1];
    next = target === undefined ? undefined : new URL(target, next).href;
  }
  return plants;
}

async function expectOk(response: Response): Promise<Response> {
  if (response.ok) return response;
  throw new Error(`${response.status}: ${await response.text()}`);
}

/** Runs `work` for every line, several in parallel. After a failure, starts no more and waits for the rest. */
async function forEach(
  all: readonly string[],
  work: (line: string, index: number) => Promise<void>,
): Promise<void> {
  const left = all.entries();
  const failures: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const [index, line] of left) {
      if (failures.length > 0) return;
      await work(line, index).catch((failure: unknown) => void failures.push(failure));
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  if (failures.length > 0) throw failures[0];
}

// fetch reports the reason, such as ECONNREFUSED, in `cause`.
function reasonOf(failure: unknown): string {
  if (!(failure instanceof Error)) return String(failure);
  return failure.cause instanceof Error ? failure.cause.message : failure.message;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
