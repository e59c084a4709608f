import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { describe, type TestContext, test } from 'node:test';
import { createClient, PlantStoreError } from '../src/client/client.ts';
import type { NewPlant, Plant } from '../src/plant.ts';
import { INT64_MAX, INT64_MIN } from '../src/plant.ts';
import { engines } from './engines.ts';
import { startService } from './service.ts';
import { startTcpProxy } from './tcp-proxy.ts';

for (const engine of engines) {
  describe(`the client on ${engine.name}`, () => {
    test('creates, lists by pages and deletes, with ids exact at both ends of an int64', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const ids = [INT64_MIN, -1n, 0, 7, 2n ** 53n + 1n, INT64_MAX];
      for (const id of ids)
        assert.deepEqual(await client.createPlant({ id, name: `${id}` }), { name: `${id}` });
      for (const limit of [1, 2, 6, 7]) {
        const plants = await Array.fromAsync(client.listPlants({ limit }));
        assert.deepEqual(
          plants,
          ids.map((id) => ({ name: `${id}` })),
        );
      }
      for (const id of ids) await client.deletePlant(id);
      assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
      await service.close();
    });

    test('reads only the pages that are asked for', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      for (const id of [1, 2, 3, 4]) await client.createPlant({ id, name: `${id}`, tag: '' });
      for await (const plant of client.listPlants({ limit: 2 })) {
        assert.deepEqual(plant, { name: '1', tag: '' });
        break;
      }
      await service.close();
      assert.equal(service.logLines.filter((line) => line.includes('"operation":"listPlants"')).length, 1);
    });

    test('asks a function for a token before each try, and once more when it is refused', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const good = await service.token();
      const given = ['expired', good, good];
      const client = createClient({ url: service.url, token: async () => given.shift() ?? 'none' });
      assert.deepEqual(await client.createPlant({ id: 7, name: 'Fern' }), { name: 'Fern' });
      await client.deletePlant(7);
      await assert.rejects(client.deletePlant(7), { error: 40101, status: 401 });
      await service.close();
    });

    test('loses nothing and makes nothing twice when answers are lost', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const proxy = await startTcpProxy(t, Number(new URL(service.url).port));
      const client = createClient({ url: `http://127.0.0.1:${proxy.port}`, token: await service.token() });
      for (const accident of ['cut before', 'cut after'] as const) {
        const created = proxy.expect(/POST/, accident);
        assert.deepEqual(await client.createPlant({ id: 7, name: accident }), { name: accident });
        await created;
        const listed = proxy.expect(/GET/, accident);
        assert.deepEqual(await Array.fromAsync(client.listPlants()), [{ name: accident }]);
        await listed;
        const deleted = proxy.expect(/DELETE/, accident);
        await client.deletePlant(7);
        await deleted;
      }
      await assert.rejects(client.deletePlant(7), { error: 40400, status: 404, outcomeUnknown: false });
      await service.close();
    });
  });
}

describe('an id', () => {
  const client = createClient({ url: 'http://127.0.0.1:1', token: 'none' });

  for (const id of [2 ** 53, 1.5, Number.NaN, 2n ** 63n, -(2n ** 63n) - 1n]) {
    test(`such as ${id} is refused before anything is sent`, async () => {
      await assert.rejects(client.createPlant({ id, name: 'Fern' }), RangeError);
      await assert.rejects(client.deletePlant(id), RangeError);
    });
  }
});

describe('a call that fails', () => {
  test('is tried again when that may help, after the time that Retry-After asks for, with the same key', async (t) => {
    const keys: unknown[] = [];
    const times: number[] = [];
    const url = await serve(t, (request, response) => {
      keys.push(request.headers['idempotency-key']);
      times.push(performance.now());
      if (times.length === 1)
        response.writeHead(503, { 'retry-after': '1' }).end('{"error":50300,"message":"later"}');
      else if (times.length === 2) response.writeHead(502).end('<html>');
      else response.end('{"name":"Fern"}');
    });
    const client = createClient({ url, token: 'secret' });
    assert.deepEqual(await client.createPlant({ id: 7, name: 'Fern' }), { name: 'Fern' });
    const [first = 0, second = 0] = times;
    assert.ok(second - first >= 999, `tried again after ${second - first} ms`);
    assert.equal(new Set(keys).size, 1);
    assert.match(String(keys[0]), /^[0-9a-f-]{36}$/);
  });

  test('is not tried again when it is refused, nor more often than was said, nor when it should wait for long', async (t) => {
    let requests = 0;
    const answers = [
      { status: 400, body: '{"error":40002,"message":"taken"}', requests: 1 },
      { status: 503, body: '{"error":50301,"message":"overloaded"}', requests: 3 },
      {
        status: 429,
        body: '{"error":42900,"message":"slower"}',
        headers: { 'retry-after': '3600' },
        requests: 1,
      },
      { status: 418, body: 'short and stout', requests: 1 },
    ];
    let [answer] = answers;
    const url = await serve(t, (_request, response) => {
      requests += 1;
      const headers = { 'x-request-id': 'r1', ...answer?.headers };
      response.writeHead(answer?.status ?? 500, headers).end(answer?.body);
    });
    const client = createClient({ url, token: 'secret', retries: 2 });
    for (answer of answers) {
      requests = 0;
      const { status, body } = answer;
      const failure = await client.createPlant({ id: 7, name: 'Fern' }).catch((error: unknown) => error);
      assert.ok(failure instanceof PlantStoreError);
      assert.equal(failure.status, status);
      assert.equal(failure.error, /\d{5}/.test(body) ? Number(/\d{5}/.exec(body)?.[0]) : undefined);
      assert.match(failure.message, /taken|overloaded|slower|short and stout/);
      assert.equal(failure.requestId, 'r1');
      assert.equal(requests, answer.requests);
    }
  });

  test('says that nobody answered, and why', async (t) => {
    const silent = await serve(t, () => undefined);
    const client = createClient({ url: silent, token: 'secret', timeoutMs: 50, retries: 1 });
    await assert.rejects(client.deletePlant(7), {
      name: 'PlantStoreError',
      message: `no answer from DELETE ${silent}/plants/7 within 50 ms`,
      status: undefined,
      error: undefined,
      outcomeUnknown: true,
    });
    const nowhere = createClient({ url: 'http://127.0.0.1:1', token: 'secret', retries: 0 });
    await assert.rejects(Array.fromAsync(nowhere.listPlants()), /no answer from GET .*ECONNREFUSED|bad port/);
  });

  test('ends when its signal is aborted, under way and between two tries', async (t) => {
    const reason = new Error('enough');
    const arrived = Promise.withResolvers<void>();
    const silent = await serve(t, () => arrived.resolve());
    const controller = new AbortController();
    const client = createClient({ url: silent, token: 'secret' });
    const call = client.createPlant({ id: 7, name: 'Fern' }, { signal: controller.signal });
    await arrived.promise;
    controller.abort(reason);
    await assert.rejects(call, reason);
    await assert.rejects(client.deletePlant(7, { signal: controller.signal }), reason);

    const waiting = new AbortController();
    const busy = await serve(t, (_request, response) => {
      response.writeHead(503, { 'retry-after': '30' }).end(() => setImmediate(() => waiting.abort(reason)));
    });
    const { signal } = waiting;
    await assert.rejects(createClient({ url: busy, token: 'secret' }).deletePlant(7, { signal }), reason);
  });

  test('tells of an answer that is not of a Plant Store', async (t) => {
    const url = await serve(t, (_request, response) => response.end('<html>welcome</html>'));
    const client = createClient({ url, token: 'secret' });
    await assert.rejects(
      client.createPlant({ id: 7, name: 'Fern' }),
      /is the url right\? It begins: <html>welcome/,
    );
    await assert.rejects(Array.fromAsync(client.listPlants()), /is the url right/);
  });
});

describe('a token', () => {
  test('goes nowhere else, wherever a Link points', async (t) => {
    const elsewhere = 'https://elsewhere.example/plants';
    const url = await serve(t, (_request, response) => {
      response.setHeader('link', `<${elsewhere}>; rel="next"`).end('[{"name":"Fern"}]');
    });
    const list = createClient({ url, token: 'secret' }).listPlants();
    assert.deepEqual((await list.next()).value, { name: 'Fern' });
    await assert.rejects(list.next(), PlantStoreError);
  });
});

test('the plants of the client are those of the service', () => {
  const toService = (
    plant: Parameters<ReturnType<typeof createClient>['createPlant']>[0],
  ): Omit<NewPlant, 'id'> => plant;
  const fromService = (plant: Plant): Awaited<ReturnType<ReturnType<typeof createClient>['createPlant']>> =>
    plant;
  assert.deepEqual(toService({ id: 7n, ...fromService({ name: 'Fern' }) }), { id: 7n, name: 'Fern' });
});

/** A server that answers as told; it ends after the test. Resolves to its URL. */
async function serve(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  return `http://127.0.0.1:${address.port}`;
}
