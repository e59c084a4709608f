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

const AT_ONCE = 16;

const [url, token] = process.argv.slice(2);
if (url === undefined || token === undefined) {
  throw new Error('call it as: npx node examples/create-and-list.ts URL TOKEN');
}
const authorization = { authorization: `Bearer ${token}` };

const text = await readFile(new URL('./plants.ndjson', import.meta.url), 'utf8');
const lines = text.trimEnd().split('\n');

const run = randomUUID();

// The lines are sent as they are: an id beyond 2^53 would not survive JSON.parse.
await forEach(lines, async (line, index) => {
  const headers = {
    ...authorization,
    'content-type': 'application/json',
    'idempotency-key': `${run}-${index}`,
  };
  await expectOk(await fetch(`${url}/plants`, { method: 'POST', headers, body: line }));
});
say(`created ${lines.length} plants`);

const listed = await listAll(`${url}/plants?limit=100`);
const sent = lines.map((line): Plant => JSON.parse(line, (key, value) => (key === 'id' ? undefined : value)));
if (JSON.stringify(listed) !== JSON.stringify(sent)) throw new Error('the list is not what was created');
say(`listed ${listed.length} plants in pages of 100, equal to the file`);

await forEach(lines, async (line) => {
  const id = /"id":(-?\d+)/.exec(line)?.[1];
  await expectOk(await fetch(`${url}/plants/${id}`, { method: 'DELETE', headers: authorization }));
});
say(`deleted ${lines.length} plants`);

/** Follows the `Link` headers (RFC 8288) from page to page. */
async function listAll(first: string): Promise<Plant[]> {
  const plants: Plant[] = [];
  for (let next: string | undefined = first; next !== undefined; ) {
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

/** Runs some work for every line, a few at once. */
async function forEach(
  all: readonly string[],
  work: (line: string, index: number) => Promise<void>,
): Promise<void> {
  const left = all.entries();
  const worker = async (): Promise<void> => {
    for (const [index, line] of left) await work(line, index);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
