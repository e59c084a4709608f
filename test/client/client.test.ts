import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer, type LookupFunction } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { createClient, type GiveToken, PlantStoreError } from '../../client/src/client.ts';
import { INT64_MAX, INT64_MIN } from '../../src/plant.ts';
import { engines } from '../support/engines.ts';
import { freePort, listenOnFreePort } from '../support/servers/free-port.ts';
import { serve } from '../support/servers/stub-server.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';
import { startService } from '../support/service.ts';

/** The broadcast address. TCP cannot connect to it. */
const UNREACHABLE = '255.255.255.255';

for (const engine of engines) {
  describe(`the client on ${engine.name}`, () => {
    test('creates, lists by pages and deletes, with ids exact at both ends of an int64', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const ids = [INT64_MIN, -1n, 0, 7, 2n ** 53n + 1n, INT64_MAX];
      for (const id of ids)
        assert.deepEqual((await client.createPlant({ id, name: `${id}` })).plant, { name: `${id}` });
      for (const pageSize of [1, 2, 6, 7]) {
        const plants = await Array.fromAsync(client.listPlants({ pageSize }));
        assert.deepEqual(
          plants,
          ids.map((id) => ({ name: `${id}` })),
        );
      }
      for (const id of ids) await client.deletePlant(id);
      assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
      await service.close();
    });

    test('reads only the pages that are needed', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      for (const id of [1, 2, 3, 4]) await client.createPlant({ id, name: `${id}`, tag: '' });
      for await (const plant of client.listPlants({ pageSize: 2 })) {
        assert.deepEqual(plant, { name: '1', tag: '' });
        break;
      }
      await service.close();
      assert.equal(service.logLines.filter((line) => line.includes('"operation":"listPlants"')).length, 1);
    });

    test('calls the token function before each attempt, and once more after a 401', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const good = await service.token();
      const given = ['expired', good, good];
      const client = createClient({ url: service.url, token: async () => given.shift() ?? 'none' });
      assert.deepEqual((await client.createPlant({ id: 7, name: 'Fern' })).plant, { name: 'Fern' });
      await client.deletePlant(7);
      await assert.rejects(client.deletePlant(7), { code: 40101, status: 401 });
      await service.close();
    });

    test('responses lost → every plant is created once', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const proxy = await startTcpProxy(t, Number(new URL(service.url).port));
      const client = createClient({ url: `http://127.0.0.1:${proxy.port}`, token: await service.token() });
      for (const accident of ['cut before', 'cut after'] as const) {
        const created = proxy.expect(/POST/, accident);
        assert.deepEqual((await client.createPlant({ id: 7, name: accident })).plant, { name: accident });
        await created;
        const listed = proxy.expect(/GET/, accident);
        assert.deepEqual(await Array.fromAsync(client.listPlants()), [{ name: accident }]);
        await listed;
        const deleted = proxy.expect(/DELETE/, accident);
        await client.deletePlant(7);
        await deleted;
      }
      await assert.rejects(client.deletePlant(7), { code: 40400, status: 404, outcomeUnknown: false });
      await service.close();
    });
  });
}

describe('an invalid argument is rejected before anything is sent', () => {
  const sent: unknown[] = [];
  const client = createClient({
    url: 'http://127.0.0.1:8080',
    token: 'none',
    fetch: async (...request) => {
      sent.push(request);
      return new Response('[]');
    },
  });
  const ids = [2 ** 53, 1.5, Number.NaN, 2n ** 63n, -(2n ** 63n) - 1n];
  // Values that callers without types can pass.
  const noIds: unknown[] = ['7', '', null, undefined, true, {}, [7]];
  const noTexts: unknown[] = [7, null, true, {}, Symbol.iterator];

  for (const id of [...ids, ...noIds]) {
    test(`an id such as ${inspect(id)}`, async () => {
      const call = { name: 'RangeError', message: /^the id / };
      await assert.rejects(Reflect.apply(client.createPlant, undefined, [{ id, name: 'Fern' }]), call);
      await assert.rejects(Reflect.apply(client.deletePlant, undefined, [id]), call);
      assert.deepEqual(sent, []);
    });
  }

  for (const text of noTexts) {
    test(`a name or a tag such as ${inspect(text)}`, async () => {
      for (const plant of [
        { id: 7, name: text },
        { id: 7, name: 'Fern', tag: text },
      ]) {
        const call = Reflect.apply(client.createPlant, undefined, [plant]);
        await assert.rejects(call, { name: 'TypeError', message: /^the (name|tag) / });
      }
      assert.deepEqual(sent, []);
    });
  }

  test('a plant without an id → the message says that it is missing', async () => {
    const message = 'the id is missing; it must be a bigint or a safe integer';
    const create = Reflect.apply(client.createPlant, undefined, [{ name: 'Fern' }]);
    await assert.rejects(create, { name: 'RangeError', message });
    await assert.rejects(Reflect.apply(client.deletePlant, undefined, []), { message });
  });

  test('an integer that JavaScript may have rounded → the message asks for a bigint', async () => {
    const message =
      'the id must be a bigint or a safe integer, not the number 9007199254740992; write it as a bigint, with n at its end';
    await assert.rejects(client.deletePlant(2 ** 53), { name: 'RangeError', message });
    await assert.rejects(client.deletePlant(1.5), { message: /not the number 1\.5$/ });
  });

  for (const plant of [undefined, null, 'Fern']) {
    test(`a plant such as ${inspect(plant)}`, async () => {
      const message = 'the plant must be an object with id and name';
      const call = Reflect.apply(client.createPlant, undefined, [plant]);
      await assert.rejects(call, { name: 'TypeError', message });
    });
  }

  for (const options of [undefined, null, 'http://127.0.0.1:8080']) {
    test(`options of the client such as ${inspect(options)}`, () => {
      const message = 'createClient needs an object with url and token';
      const create = (): unknown => Reflect.apply(createClient, undefined, [options]);
      assert.throws(create, { name: 'TypeError', message });
    });
  }

  test('a plant without a name', async () => {
    const call = Reflect.apply(client.createPlant, undefined, [{ id: 7 }]);
    await assert.rejects(call, { name: 'TypeError', message: 'the name of a plant must be a string' });
    assert.deepEqual(sent, []);
  });

  for (const [token, returned] of [
    [undefined, 'undefined'],
    [null, 'object'],
    ['', 'an invalid text'],
    ['two words', 'an invalid text'],
    ['Bearer plt_x', 'an invalid text'],
    ['ends\n', 'an invalid text'],
    ['plt_ä', 'an invalid text'],
  ] as const) {
    test(`a token such as ${inspect(token)}, which the message does not repeat`, async () => {
      const rule = 'must be a text of visible ASCII without spaces, line breaks or `Bearer`';
      const rejection = { name: 'TypeError', message: `the option token ${rule}, or a function` };
      const url = 'http://127.0.0.1:8080';
      assert.throws(() => Reflect.apply(createClient, undefined, [{ url, token }]), rejection);
      const fetch = async (): Promise<Response> => new Response(`${sent.push('called')}`);
      const late = Reflect.apply(createClient, undefined, [{ url, token: () => token, fetch }]);
      const reason = `the token function returned ${returned}; a token ${rule}`;
      const message = `no token for DELETE ${url}/plants/7 (${reason})`;
      await assert.rejects(late.deletePlant(7), { name: 'PlantStoreError', message, outcomeUnknown: false });
      assert.deepEqual(sent, []);
    });
  }

  for (const url of ['127.0.0.1:8080', 'localhost:8080', '', '/v1', 'ftp://plants.example', undefined]) {
    test(`a url such as ${inspect(url)}`, () => {
      const create = (): unknown => Reflect.apply(createClient, undefined, [{ url, token: 'none' }]);
      assert.throws(create, { name: 'TypeError', message: /^the option url must be an http:\/\/ or https:/ });
    });
  }
});

describe('a plant to create', () => {
  test('has toJSON or is an array → only its fields are sent', async (t) => {
    const bodies: string[] = [];
    const url = await serve(t, async (request, response) => {
      bodies.push(await text(request));
      response.end('{"name":"Fern"}');
    });
    const client = createClient({ url, token: 'secret' });
    const plant = { id: 7, name: 'Fern', tag: undefined };
    await client.createPlant(Object.assign(plant, { toJSON: () => ({}) }));
    await client.createPlant(Object.assign([], plant));
    assert.deepEqual(bodies, Array(2).fill('{"id":7,"name":"Fern"}'));
  });

  test('has a getter that changes its value → the checked value is sent', async (t) => {
    const bodies: string[] = [];
    const url = await serve(t, async (request, response) => {
      bodies.push(await text(request));
      response.end('{"name":"Fern"}');
    });
    const ids: unknown[] = [7, 'eight'];
    const names: unknown[] = ['Fern', 8];
    const tags: unknown[] = ['Alnus', null];
    const plant = Object.defineProperties(
      {},
      {
        id: { get: () => ids.shift() },
        name: { get: () => names.shift() },
        tag: { get: () => tags.shift() },
      },
    );
    await Reflect.apply(createClient({ url, token: 'secret' }).createPlant, undefined, [plant]);
    assert.deepEqual(bodies, ['{"id":7,"name":"Fern","tag":"Alnus"}']);
  });
});

describe('a call that fails', () => {
  test('transient error → retried after Retry-After, with the same key', async (t) => {
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
    assert.deepEqual((await client.createPlant({ id: 7, name: 'Fern' })).plant, { name: 'Fern' });
    const [first = 0, second = 0] = times;
    assert.ok(second - first >= 999, `tried again after ${second - first} ms`);
    assert.equal(new Set(keys).size, 1);
    assert.match(String(keys[0]), /^\d+(?:-\d+){3}$/);
  });

  test('keys of different creations differ, and begin with the time', async (t) => {
    const keys: string[] = [];
    const url = await serve(t, (request, response) => {
      keys.push(String(request.headers['idempotency-key']));
      response.end('{"name":"Fern"}');
    });
    const client = createClient({ url, token: 'secret' });
    const begun = Date.now();
    for (const id of [7, 8]) await client.createPlant({ id, name: 'Fern' });
    const times = keys.map((key) => Number(key.split('-')[0]));
    assert.equal(new Set(keys.map((key) => key.slice(key.indexOf('-')))).size, 2, 'the rest is random');
    assert.deepEqual([begun, ...times, Date.now()].toSorted(), [begun, ...times, Date.now()]);
  });

  test('408, with which the service rejects a request that arrives too slowly → retried', async (t) => {
    let requests = 0;
    const url = await serve(t, (_request, response) => {
      requests += 1;
      if (requests === 1) response.writeHead(408).end('{"error":40800,"message":"too slow"}');
      else response.end('{"name":"Fern"}');
    });
    await createClient({ url, token: 'secret' }).createPlant({ id: 7, name: 'Fern' });
    assert.equal(requests, 2);
  });

  test('error of a gateway in the form of the service → outcome unknown; a deletion that it hid counts', async (t) => {
    const gateway = '{"error":504,"message":"upstream request timeout"}';
    const statuses = [504, 404];
    const url = await serve(t, (request, response) => {
      const isDeletion = request.method === 'DELETE';
      const status = isDeletion ? (statuses.shift() ?? 404) : 504;
      const missing = '{"error":40400,"message":"there is no plant with the id 7"}';
      response.writeHead(status).end(status === 504 ? gateway : missing);
    });
    const client = createClient({ url, token: 'secret', retries: 1 });
    await client.deletePlant(7);
    const unknown = { status: 504, code: undefined, outcomeUnknown: true };
    await assert.rejects(client.createPlant({ id: 7, name: 'Fern' }), unknown);
  });

  test('not retried after a client error, over the limit of retries, or with a long Retry-After', async (t) => {
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
      assert.equal(failure.code, /\d{5}/.test(body) ? Number(/\d{5}/.exec(body)?.[0]) : undefined);
      assert.match(failure.message, /taken|overloaded|slower|short and stout/);
      assert.equal(failure.requestId, 'r1');
      assert.equal(requests, answer.requests);
    }
  });

  test('no response → the message gives the reason', async (t) => {
    const silent = await serve(t, () => undefined);
    const client = createClient({ url: silent, token: 'secret', timeoutMs: 50, retries: 1 });
    await assert.rejects(client.deletePlant(7), {
      name: 'PlantStoreError',
      message: `no answer from DELETE ${silent}/plants/7 within 50 ms; raise timeoutMs`,
      status: undefined,
      code: undefined,
      outcomeUnknown: true,
    });
  });

  test('connection impossible → outcomeUnknown is false', async (t) => {
    const url = await serve(t, () => undefined);
    const { port } = new URL(url);
    const unusedPort = await freePort();
    for (const [host, reason] of [
      [`127.0.0.1:${unusedPort}`, 'ECONNREFUSED'],
      [`plants.invalid:${port}`, 'ENOTFOUND|EAI_AGAIN'],
      [UNREACHABLE, 'connect ENETUNREACH'],
      ['127.0.0.1:22', 'bad port'],
    ] as const) {
      const client = createClient({ url: `http://${host}`, token: 'secret', retries: 1 });
      const call = client.createPlant({ id: 7, name: 'Fern' });
      await assert.rejects(call, {
        name: 'PlantStoreError',
        message: new RegExp(`^no answer from POST http://${host}/plants \\(.*(${reason}).*\\)$`),
        outcomeUnknown: false,
      });
    }
  });

  test('one attempt was sent, the last was not → outcomeUnknown is true', async (t) => {
    const cutting = await serve(t, (request) => request.socket.destroy());
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    let requests = 0;
    const client = createClient({
      url: cutting,
      token: 'secret',
      retries: 1,
      fetch: (input, init) => {
        requests += 1;
        return fetch(requests === 2 ? nowhere : input, init);
      },
    });
    await assert.rejects(client.createPlant({ id: 7, name: 'Fern' }), {
      message: /ECONNREFUSED/,
      outcomeUnknown: true,
    });
  });

  for (const [address, code] of [
    ['127.0.0.1', 'ECONNREFUSED'],
    [UNREACHABLE, 'ENETUNREACH'],
  ] as const) {
    test(`no address of a host answers → the message gives the reason, ${code}`, async () => {
      const port = await freePort();
      const lookup: LookupFunction = (_name, _options, give) =>
        give(null, [
          { address, family: 4 },
          { address: '::1', family: 6 },
        ]);
      const [cause] = await once(connect({ host: 'plants.example', port, lookup }), 'error');
      assert.ok(cause instanceof AggregateError);
      const fetch = (): Promise<never> => Promise.reject(new TypeError('fetch failed', { cause }));
      const client = createClient({ url: 'http://plants.example', token: 'secret', retries: 0, fetch });
      await assert.rejects(client.deletePlant(7), {
        message: `no answer from DELETE http://plants.example/plants/7 (${code})`,
        outcomeUnknown: false,
      });
    });
  }

  test('invalid certificate → outcomeUnknown is false, and no request arrives', async (t) => {
    let requests = 0;
    const [key, cert] = await Promise.all(
      ['key', 'pem'].map((kind) =>
        readFile(new URL(`../support/certificates/first.${kind}`, import.meta.url)),
      ),
    );
    const server = createHttpsServer({ key, cert }, (_request, response) => {
      requests += 1;
      response.end();
    });
    t.after(() => server.close());
    const url = `https://127.0.0.1:${await listenOnFreePort(server)}`;
    const client = createClient({ url, token: 'secret', retries: 0 });
    await assert.rejects(client.deletePlant(7), {
      message: /self-signed certificate/,
      outcomeUnknown: false,
    });
    assert.equal(requests, 0);
  });

  test('header that fetch rejects → outcomeUnknown is false, and no request arrives', async (t) => {
    let requests = 0;
    const url = await serve(t, (_request, response) => {
      requests += 1;
      response.end();
    });
    const client = createClient({
      url,
      token: 'secret',
      retries: 0,
      fetch: (url, { headers, ...request }) =>
        fetch(url, { ...request, headers: { ...headers, 'transfer-encoding': 'chunked' } }),
    });
    await assert.rejects(client.deletePlant(7), {
      message: /invalid transfer-encoding header/,
      outcomeUnknown: false,
    });
    assert.equal(requests, 0);
  });

  test('plant absent at the first attempt that was sent → not counted as deleted', async (t) => {
    const gone = await serve(t, (_request, response) => {
      response.writeHead(404).end('{"error":40400,"message":"no such plant"}');
    });
    const closing = createServer((socket) => socket.resume().end());
    t.after(() => closing.close());
    for (const nowhere of [
      `http://127.0.0.1:${await freePort()}`,
      `http://${UNREACHABLE}`,
      `https://127.0.0.1:${await listenOnFreePort(closing)}`,
    ]) {
      let requests = 0;
      const client = createClient({
        url: gone,
        token: 'secret',
        fetch: (input, init) => {
          requests += 1;
          return fetch(requests === 1 ? nowhere : input, init);
        },
      });
      await assert.rejects(client.deletePlant(7), { code: 40400, outcomeUnknown: false }, nowhere);
      assert.equal(requests, 2);
    }
  });

  test('token function fails → one call of it, and the message gives the reason', async () => {
    const cause = new Error('the identity provider is closed');
    const givers: readonly GiveToken[] = [
      () => Promise.reject(cause),
      () => {
        throw cause;
      },
    ];
    for (const giveToken of givers) {
      let asked = 0;
      const token: GiveToken = () => {
        asked += 1;
        return giveToken();
      };
      const client = createClient({ url: 'http://127.0.0.1:8080/v1', token, fetch: neverCalled });
      await assert.rejects(client.deletePlant(7), {
        name: 'PlantStoreError',
        message: 'no token for DELETE http://127.0.0.1:8080/v1/plants/7 (the identity provider is closed)',
        code: undefined,
        status: undefined,
        outcomeUnknown: false,
        cause,
      });
      assert.equal(asked, 1);
    }
  });

  test('attempt sent, then no token for the retry → outcomeUnknown is true', async (t) => {
    const given = ['secret'];
    const url = await serve(t, (request) => request.socket.destroy());
    const token: GiveToken = async () => given.shift() ?? Promise.reject(new Error('no more'));
    const call = createClient({ url, token }).createPlant({ id: 7, name: 'Fern' });
    await assert.rejects(call, { message: /^no token for POST .*no more/, outcomeUnknown: true });
  });

  test('waiting for a token ends with the timeout and with the signal', async (t) => {
    const asked = Promise.withResolvers<void>();
    const silent = await serve(t, () => asked.resolve());
    const token: GiveToken = async () => (await fetch(silent)).text();
    const url = 'http://127.0.0.1:8080';
    const hasty = createClient({ url, token, timeoutMs: 50, fetch: neverCalled });
    await assert.rejects(hasty.deletePlant(7), {
      name: 'PlantStoreError',
      message: 'no token for DELETE http://127.0.0.1:8080/plants/7 within 50 ms; raise timeoutMs',
      outcomeUnknown: false,
    });
    const reason = new Error('enough');
    const controller = new AbortController();
    const client = createClient({ url, token, fetch: neverCalled });
    const call = client.deletePlant(7, { signal: controller.signal });
    await asked.promise;
    controller.abort(reason);
    await assert.rejects(call, reason);
  });

  test('signal aborted during an attempt or a pause → the call ends', async (t) => {
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

  test('signal of several calls → keeps no listener of them', async (t) => {
    const { signal } = new AbortController();
    let requests = 0;
    const url = await serve(t, (_request, response) => {
      requests += 1;
      response.writeHead([503, 204, 404][requests - 1] ?? 0).end();
    });
    const client = createClient({ url, token: 'secret' });
    await client.deletePlant(7, { signal });
    await assert.rejects(client.deletePlant(7, { signal }), { status: 404 });
    assert.equal(requests, 3);
    assert.deepEqual(getEventListeners(signal, 'abort'), []);
  });

  test('signal aborted when an error response arrives → the call ends', { timeout: 5_000 }, async () => {
    const reason = new Error('enough');
    const controller = new AbortController();
    const pull = (body: ReadableStreamDefaultController): void => {
      controller.abort(reason);
      body.close();
    };
    const rejecting = async (): Promise<Response> => {
      const body = new ReadableStream({ pull }, { highWaterMark: 0 });
      return new Response(body, { status: 503, headers: { 'retry-after': '30' } });
    };
    const client = createClient({ url: 'http://plants.example', token: 'secret', fetch: rejecting });
    await assert.rejects(client.deletePlant(7, { signal: controller.signal }), reason);
  });

  test('response from another program → the message says so', async (t) => {
    const url = await serve(t, (_request, response) => response.end('<html>welcome</html>'));
    const client = createClient({ url, token: 'secret' });
    await assert.rejects(
      client.createPlant({ id: 7, name: 'Fern' }),
      /begins with "<html>welcome<\/html>"; is the option url right\?$/,
    );
    await assert.rejects(Array.fromAsync(client.listPlants()), /is the option url right/);
  });
});

describe('a token', () => {
  test('is not sent to another origin of a Link', async (t) => {
    const paths: unknown[] = [];
    const url = await serve(t, ({ url: path }, response) => {
      paths.push(path);
      if (paths.length === 1)
        response.setHeader('link', '<https://elsewhere.example/trees?cursor=a%26b>; rel="next"');
      response.end('[{"name":"Fern"}]');
    });
    const list = createClient({ url, token: 'secret' }).listPlants({ pageSize: 1 });
    assert.deepEqual(await Array.fromAsync(list), [{ name: 'Fern' }, { name: 'Fern' }]);
    assert.deepEqual(paths, ['/plants?limit=1', '/plants?limit=1&cursor=a%26b']);
  });

  test('is sent to the host of the url, even with a path that starts with two slashes', async (t) => {
    const paths: unknown[] = [];
    const url = await serve(t, ({ method, url: path }, response) => {
      paths.push(path);
      if (method === 'DELETE') response.writeHead(204).end();
      else response.end('[]');
    });
    const client = createClient({ url: `${url}//v1`, token: 'secret', retries: 0 });
    assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
    await client.deletePlant(7);
    assert.deepEqual(paths, ['//v1/plants?limit=1000', '//v1/plants/7']);
  });
});

async function neverCalled(): Promise<never> {
  assert.fail('something was sent');
}
