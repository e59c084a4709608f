import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage, request } from 'node:http';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { CONCURRENT_BUFFERED_LISTS } from '../../../src/http/plants/list-plants.ts';
import { openWire } from '../../support/clients/raw-connection.ts';
import { headerOf, sendRequest } from '../../support/clients/raw-http.ts';
import { engines, type TestEngine } from '../../support/engines.ts';
import { countSeconds, until } from '../../support/patience.ts';
import { repetitions } from '../../support/repetitions.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';
import { create } from '../../support/store-setup.ts';

interface Page {
  readonly names: readonly string[];
  readonly next: string | undefined;
}

/** Plants are created in portions, since the number of queued writes is limited. */
const MADE_AT_ONCE = 5_000;

/** Together more bytes than the socket buffers between the service and a client that does not read. */
const BIG_NAME = 'x'.repeat(60_000);
const BIG_PLANTS = 220;

/** Size at which a page of a list with a limit ends. */
const LARGEST_PAGE = 8 * 1024 * 1024;
const LONG_LIST = 1_600;

const CHURNERS = 40;

const edges: readonly bigint[] = [
  -(2n ** 63n),
  -(2n ** 63n) + 1n,
  -(2n ** 53n) - 1n,
  -(2n ** 53n),
  -100n,
  -2n,
  -1n,
  0n,
  1n,
  2n,
  2n ** 31n,
  2n ** 53n,
  2n ** 53n + 1n,
  2n ** 63n - 2n,
  2n ** 63n - 1n,
];

const ONE_MIB = 'x'.repeat(2 ** 20);

for (const engine of engines) {
  test(`following Link → every plant once, in order, for any page size, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    await make(service, edges.toReversed().map(named));
    for (const limit of [1, 2, 3, 4, 5, 7, 14, 15, 16, 2 ** 31 - 1]) {
      const pages = await walk(service, token, `?limit=${limit}`);
      assert.deepEqual(
        pages.flatMap(({ names }) => names),
        edges.map(String),
        `in pages of ${limit}`,
      );
      assert.equal(pages.length, Math.ceil(edges.length / limit));
      for (const { names } of pages.slice(0, -1)) assert.equal(names.length, limit);
    }
    await service.close();
  });

  test(`20,000 plants, no limit → streamed, complete and in order, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const ids = Array.from({ length: 20_000 }, (_, index) => BigInt(index - 10_000) * 3n);
    await make(service, ids.toReversed().map(named));
    const response = await fetch(`${service.url}/plants`, { headers: bearer(token) });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-length'), null);
    assert.equal(response.headers.get('link'), null);
    assert.equal(response.headers.get('content-type'), 'application/json');
    const expected = ids.map((id) => `{"name":"${id}"}`).join(',');
    assert.equal(await response.text(), `[${expected}]`);
    await service.close();
  });

  test(`plants larger than a page, of characters with surrogates → exact, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), { bodyLimit: '4194304' });
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    // One of them has a character at each end of a piece.
    const plants = ['', 'x'].map((begin) => ({ name: begin + '\u{1f331}'.repeat(100_000) }));
    for (const [id, plant] of plants.entries()) {
      const body = JSON.stringify({ id, ...plant });
      assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    }
    for (const query of ['', '?limit=2']) {
      const list = await (await fetch(`${service.url}/plants${query}`, { headers })).text();
      assert.ok(list === JSON.stringify(plants), query);
    }
  });

  test(`concurrent pages of large plants, above --send-buffer-limit → complete, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), {
      bodyLimit: '4194304',
      sendBufferLimit: '1048576',
    });
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    const plants = [1, 700_000, 1, 1, 900_000, 30_000].map((size) => ({ name: 'x'.repeat(size) }));
    for (const [id, plant] of plants.entries()) {
      const body = JSON.stringify({ id, ...plant });
      assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    }
    await Promise.all(
      ['?limit=9', '?limit=8', '?limit=7', '?limit=6'].map(async (query) => {
        const list = await (await fetch(`${service.url}/plants${query}`, { headers })).text();
        assert.ok(list === JSON.stringify(plants), `${query}: ${list.length} ${list.slice(0, 90)}`);
      }),
    );
  });

  test(`more pages of large plants than are read at once → complete, also of another owner, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), { bodyLimit: '4194304' });
    const headersOf = async (owner: string) => bearer(await service.token(owner));
    const [alice, bob] = [await headersOf('alice'), await headersOf('bob')];
    const names = [...Array.from({ length: 64 }, () => 'x'), ...Array.from({ length: 7 }, () => ONE_MIB)];
    for (const headers of [alice, bob])
      for (const [id, name] of names.entries()) {
        const init = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } };
        const body = JSON.stringify({ id, name });
        assert.equal((await fetch(`${service.url}/plants`, { ...init, body })).status, 200);
      }
    // The first page has only short plants, so each list reserves much more while it is read.
    const lists = [...Array.from({ length: 16 }, () => alice), bob].map(async (headers) => {
      const response = await fetch(`${service.url}/plants?limit=100`, { headers });
      return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
    });
    const bytes = JSON.stringify(names.map((name) => ({ name }))).length;
    for (const list of lists) assert.deepEqual(await list, { status: 200, bytes });
  });

  test(`concurrent creations and deletions → each lasting plant is listed exactly once, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const staying = Array.from({ length: 1_500 }, (_, index) => BigInt(index * 2 - 1_500));
    await make(service, staying.map(named));
    const churn = startChurn(service, staying);
    try {
      for (let round = 0; round < 6 || churn.changes() < repetitions(1_000); round += 1) {
        const query = ['', '?limit=37', '?limit=400'][round % 3] ?? '';
        const pages = await walk(service, token, query);
        const ids = pages.flatMap(({ names }) => names.map(BigInt));
        assert.ok(
          ids.every((id, index) => index === 0 || id > (ids[index - 1] ?? id)),
          `each id once and in order with ${query}`,
        );
        assert.deepEqual(ids.filter(isEven), staying);
      }
    } finally {
      await churn.stop();
    }
    await service.close();
  });

  test(`acknowledged write → visible in every later list on every instance, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const [one, other] = [await startService(t, url), await startService(t, url)];
    const token = await one.token();
    for (let id = 1n; id <= 20n; id += 1n) {
      const [writer, reader] = id % 2n === 0n ? [one, other] : [other, one];
      const body = JSON.stringify({ id: Number(id), name: String(id) });
      const headers = { ...bearer(token), 'content-type': 'application/json' };
      assert.equal((await fetch(`${writer.url}/plants`, { method: 'POST', headers, body })).status, 200);
      assert.deepEqual(await namesOf(reader, token), [String(id)]);
      const deleted = await fetch(`${reader.url}/plants/${id}`, { method: 'DELETE', headers: bearer(token) });
      assert.equal(deleted.status, 204);
      assert.deepEqual(await namesOf(writer, token), []);
    }
    await Promise.all([one.close(), other.close()]);
  });

  test(`concurrent creations and deletions → pages have exactly \`limit\` plants, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const staying = Array.from({ length: 4_000 }, (_, index) => BigInt(index * 2));
    await make(service, staying.map(named));
    const churn = startChurn(service, staying, 4);
    try {
      for (let round = 0; round < 3 + repetitions(17) || churn.changes() < repetitions(500); round += 1) {
        const limit = [1_000, 3_000, 37][round % 3] ?? 0;
        const [first] = await walk(service, token, `?limit=${limit}`, 1);
        assert.equal(first?.names.length, limit);
        assert.notEqual(first?.next, undefined);
      }
    } finally {
      await churn.stop();
    }
    await service.close();
  });

  test(`list with a limit → the event loop runs between pages, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const name = 'x'.repeat(1_200);
    await make(
      service,
      Array.from({ length: 5_000 }, (_, id) => ({ id: BigInt(id), name })),
    );
    const counting = new AbortController();
    const iterations = countIterations(counting.signal);
    assert.equal((await namesOf(service, token, '?limit=5000')).length, 5_000);
    counting.abort();
    // The list has more than 100 pages. Without yielding there would be about a dozen iterations.
    assert.ok((await iterations) >= 90, `${await iterations} event-loop iterations`);
    await service.close();
  });

  test(`client closed its sending side → its list with a limit reads no further page, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const name = 'x'.repeat(1_000);
    await make(
      service,
      Array.from({ length: 200 }, (_, id) => ({ id: BigInt(id), name })),
    );
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const read = service.store.listPlants.bind(service.store);
    const { mock } = t.mock.method(service.store, 'listPlants', async (...args: Parameters<typeof read>) => {
      begun.resolve();
      await released.promise;
      return read(...args);
    });
    const wire = openWire(service.url);
    t.after(() => wire.destroy());
    wire.send(`GET /plants?limit=200 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    await begun.promise;
    wire.end();
    // The service has read the end of the connection when a later request has its response.
    assert.equal((await fetch(`${service.url}/openapi.json`)).status, 200);
    released.resolve();
    await wire.rest();
    assert.equal(mock.callCount(), 1);
    await service.close();
  });

  test(`more lists with a limit than are buffered at once → one reads on when another is complete, on ${engine.name}`, async (t) => {
    const { service } = await start(t, engine);
    const owners = Array.from({ length: CONCURRENT_BUFFERED_LISTS }, (_, index) => `owner-${index}`);
    const plants = Array.from({ length: 200 }, (_, id) => ({ id: BigInt(id), name: 'x'.repeat(1_000) }));
    for (const owner of [...owners, 'late']) await make(service, plants, owner);
    const reads: string[] = [];
    let hasBegun = false;
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const read = service.store.listPlants.bind(service.store);
    t.mock.method(service.store, 'listPlants', async (...args: Parameters<typeof read>) => {
      const [owner] = args;
      const isFirst = !reads.includes(owner);
      reads.push(owner);
      if (!isFirst) await released;
      const page = await read(...args);
      if (owner === 'late') hasBegun = true;
      return page;
    });
    const list = async (owner: string) => namesOf(service, await service.token(owner), '?limit=200');
    const lists = owners.map(list);
    await until(() => reads.length === 2 * owners.length);
    lists.push(list('late'));
    await until(() => hasBegun);
    // The late list has asked for its next page when a later request has its response.
    assert.equal((await fetch(`${service.url}/openapi.json`)).status, 200);
    release();
    for (const names of await Promise.all(lists)) assert.equal(names.length, plants.length);
    const [, goesOn = 0] = reads.flatMap((owner, index) => (owner === 'late' ? [index] : []));
    assert.ok(goesOn > Math.min(...owners.map((owner) => reads.lastIndexOf(owner))), reads.join(' '));
    await service.close();
  });

  test(`large plants that were sent → leave their memory to another list, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), { sendBufferLimit: '8388608' });
    const plants = Array.from({ length: 8 }, (_, id) => ({ id: BigInt(id), name: ONE_MIB }));
    await make(service, plants);
    const others = Array.from({ length: 200 }, (_, id) => ({ id: BigInt(id), name: 'x'.repeat(1_000) }));
    await make(service, others, 'bob');
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const read = service.store.readLargePlant.bind(service.store);
    const { mock } = t.mock.method(
      service.store,
      'readLargePlant',
      async (...args: Parameters<typeof read>) => {
        if (mock.callCount() === plants.length - 1) {
          begun.resolve();
          await released.promise;
        }
        return read(...args);
      },
    );
    const long = namesOf(service, await service.token());
    await begun.promise;
    assert.equal((await namesOf(service, await service.token('bob'), '?limit=200')).length, others.length);
    released.resolve();
    assert.equal((await long).length, plants.length);
    await service.close();
  });

  test(`list of several pages, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const names = await makeLongList(service);

    await t.test(`HEAD → no body, no plants read, connection stays usable, on ${engine.name}`, async (t) => {
      const { mock } = t.mock.method(service.store, 'listPlants');
      for (const query of ['', '?limit=1500', '?limit=10']) {
        const answer = await sendRequest(service.url, {
          method: 'HEAD',
          path: `/plants${query}`,
          headers: [['Authorization', `Bearer ${token}`]],
        });
        assert.equal(answer.status, 200);
        assert.equal(answer.body.length, 0);
        assert.equal(headerOf(answer.headers, 'content-type'), 'application/json');
        for (const name of ['link', 'content-length', 'transfer-encoding'])
          assert.equal(headerOf(answer.headers, name), undefined, name);
      }
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      t.after(() => agent.destroy());
      assert.equal(await bodyOf(agent, service, token, 'HEAD', '/plants'), '');
      assert.equal(mock.callCount(), 0);
      assert.match(await bodyOf(agent, service, token, 'GET', '/plants?limit=0'), /^\[\]$/);
      agent.destroy();
    });

    await t.test(
      `page of 8 MiB → ends with a Link; the pages together are complete, on ${engine.name}`,
      async () => {
        for (const limit of [1_100, LONG_LIST, LONG_LIST + 1]) {
          const pages = await walk(service, token, `?limit=${limit}`);
          const [first = 0, ...others] = pages.map((page) => page.names.length);
          const bytes = Buffer.byteLength(JSON.stringify(names.slice(0, first).map((name) => ({ name }))));
          assert.ok(Math.abs(bytes - LARGEST_PAGE) < 2 * BIG_NAME.length, `${bytes} bytes`);
          const rest = LONG_LIST - first;
          assert.deepEqual(others, rest > limit ? [limit, rest - limit] : [rest]);
          assertNames(
            pages.flatMap((page) => page.names),
            names,
          );
        }
      },
    );

    await t.test(
      `client that stops reading a long list → others are served; the rest arrives when it reads on, on ${engine.name}`,
      async () => {
        const response = await open(service, token, '');
        const other = await service.token('bob');
        for (let round = 0; round < 20; round += 1) {
          await make(service, [named(BigInt(round))], 'bob');
          assert.equal((await namesOf(service, other)).length, round + 1);
        }
        assertNames(namesIn(await textOf(response)), names);
      },
    );

    await t.test(
      `clients that disconnect during a long list → the service stays healthy, on ${engine.name}`,
      async () => {
        const other = await service.token('carol');
        for (let round = 0; round < 2; round += 1) {
          const responses = await Promise.all(Array.from({ length: 4 }, () => open(service, token, '')));
          for (const response of responses) response.destroy();
          assert.deepEqual(await namesOf(service, other), []);
        }
        assert.equal((await namesOf(service, token, '?limit=5')).length, 5);
      },
    );

    using seconds = countSeconds();
    await service.close();
    assert.ok(seconds.passed < 7, `close took ${seconds.passed} s`);
    const failures = service.logLines.filter((line) => /"level":(?:50|60)/.test(line));
    assert.deepEqual(failures, []);
  });
}

async function start(t: TestContext, engine: TestEngine): Promise<{ service: TestService; token: string }> {
  const service = await startService(t, await engine.freshUrl(t));
  return { service, token: await service.token() };
}

function named(id: bigint): { id: bigint; name: string } {
  return { id, name: String(id) };
}

function isEven(id: bigint): boolean {
  return id % 2n === 0n;
}

async function make(
  { store }: TestService,
  plants: readonly { id: bigint; name: string }[],
  owner = 'alice',
): Promise<void> {
  for (let from = 0; from < plants.length; from += MADE_AT_ONCE) {
    const outcomes = await Promise.all(
      plants.slice(from, from + MADE_AT_ONCE).map(({ id, name }) => store.write(create(id, { owner, name }))),
    );
    assert.ok(outcomes.every((outcome) => outcome === 'created'));
  }
}

/** Creates a list whose first plants exceed the page size together. Resolves to its names. */
async function makeLongList(service: TestService): Promise<readonly string[]> {
  const plants = Array.from({ length: LONG_LIST }, (_, index) => {
    const id = BigInt(index + 1);
    return { id, name: index < BIG_PLANTS ? `${id} ${BIG_NAME}` : String(id) };
  });
  await make(service, plants);
  return plants.map(({ name }) => name);
}

/** Reads pages by following their links, up to `maxPages`. */
async function walk(
  { url }: TestService,
  token: string,
  query: string,
  maxPages = Number.POSITIVE_INFINITY,
): Promise<Page[]> {
  const pages: Page[] = [];
  let path: string | undefined = `/plants${query}`;
  while (path !== undefined && pages.length < maxPages) {
    const response: Response = await fetch(new URL(path, url), { headers: bearer(token) });
    assert.equal(response.status, 200);
    path = targetOf(response.headers.get('link') ?? undefined);
    pages.push({ names: namesIn(await response.text()), next: path });
    assert.ok(pages.length <= 2_000, 'the links do not end');
  }
  return pages;
}

function targetOf(link: string | string[] | undefined): string | undefined {
  return link === undefined ? undefined : /^<([^>]+)>; rel="next"$/.exec(String(link))?.[1];
}

function namesIn(json: string): string[] {
  const plants: unknown = JSON.parse(json);
  assert.ok(Array.isArray(plants));
  return plants.map((plant: unknown) => {
    assert.ok(typeof plant === 'object' && plant !== null && 'name' in plant);
    return String(plant.name);
  });
}

/** Compares lists whose names are too long to print. */
function assertNames(names: readonly string[], expected: readonly string[]): void {
  assert.ok(
    isDeepStrictEqual(names, expected),
    `${names.length} of ${expected.length} plants, or other ones`,
  );
}

async function namesOf({ url }: TestService, token: string, query = ''): Promise<string[]> {
  const response = await fetch(`${url}/plants${query}`, { headers: bearer(token) });
  assert.equal(response.status, 200);
  return namesIn(await response.text());
}

/** Creates and deletes plants with ids between those of `staying`, until stopped. */
function startChurn({ store }: TestService, staying: readonly bigint[], writers = CHURNERS) {
  let stopped = false;
  let changes = 0;
  const run = async (first: number): Promise<void> => {
    for (let step = first; !stopped; step += 7) {
      const plant = { owner: 'alice', id: (staying[(step * 31) % staying.length] ?? 0n) + 1n };
      const outcome = await store.write(create(plant.id, { name: String(plant.id) }));
      if (outcome === 'idTaken') await store.write({ kind: 'deletePlant', ...plant });
      changes += 1;
      await setImmediate();
    }
  };
  const runs = Promise.all(Array.from({ length: writers }, (_, index) => run(index)));
  return {
    changes: () => changes,
    stop: async () => {
      stopped = true;
      await runs;
    },
  };
}

async function countIterations(until: AbortSignal): Promise<number> {
  let iterations = 0;
  for (; !until.aborted; iterations += 1) await setImmediate();
  return iterations;
}

/** Requests a list and reads only its headers. */
async function open({ url }: TestService, token: string, query: string): Promise<IncomingMessage> {
  const sent = get(`${url}/plants${query}`, { headers: bearer(token), agent: false });
  const [response]: IncomingMessage[] = await once(sent, 'response');
  assert.equal(response?.statusCode, 200);
  response.pause();
  // The request also emits an error when the response is destroyed.
  sent.on('error', () => undefined);
  return response;
}

async function textOf(response: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function bodyOf(
  agent: Agent,
  { url }: TestService,
  token: string,
  method: string,
  path: string,
): Promise<string> {
  const sent = request(`${url}${path}`, { method, agent, headers: bearer(token) }).end();
  const [response]: IncomingMessage[] = await once(sent, 'response');
  assert.equal(response?.statusCode, 200);
  return textOf(response);
}
