import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import type { OutgoingHttpHeaders } from 'node:http';
import { createServer } from 'node:net';
import { Readable } from 'node:stream';
import { describe, type TestContext, test } from 'node:test';
import { setImmediate as nextIteration } from 'node:timers/promises';
import { inspect, promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import {
  type Attempt,
  type AttemptEnd,
  type ClientOptions,
  createClient,
  type Fetch,
  PlantStoreError,
} from '../../client/src/client.ts';
import { DEFAULTS } from '../../client/src/options.ts';
import { pauseBefore } from '../../client/src/retry.ts';
import { freePort, listenOnFreePort } from '../support/servers/free-port.ts';
import { serve } from '../support/servers/stub-server.ts';

const FERN = { id: 7, name: 'Fern' };

describe('a redirect', () => {
  for (const status of [301, 302, 303, 307, 308]) {
    test(`${status} → rejected with its target, not followed and not retried`, async (t) => {
      const requests: unknown[] = [];
      const target = 'https://plants.example/plants';
      const url = await serve(t, (request, response) => {
        requests.push(request.method);
        response.writeHead(status, { location: target, 'x-request-id': 'r1' }).end('{"name":"Fern"}');
      });
      const client = createClient({ url, token: 'secret' });
      await assert.rejects(client.createPlant(FERN), {
        name: 'PlantStoreError',
        message: `POST ${url}/plants was redirected to ${target}; fix the option url`,
        code: undefined,
        status,
        requestId: 'r1',
        outcomeUnknown: false,
      });
      await assert.rejects(Array.fromAsync(client.listPlants()), { status });
      await assert.rejects(client.deletePlant(7), { status });
      assert.deepEqual(requests, ['POST', 'GET', 'DELETE']);
    });
  }

  test('that repeats the token and has control characters → the message has neither', async (t) => {
    const url = await serve(t, (_request, response) => {
      response.writeHead(302, { location: 'http://plants.example/\u009b31m?t=plt_secret' }).end();
    });
    await assert.rejects(createClient({ url, token: 'plt_secret' }).deletePlant(7), {
      message: `DELETE ${url}/plants/7 was redirected to http://plants.example/\ufffd31m?t=[token]; fix the option url`,
    });
  });

  test('that the platform hides, as browsers do → rejected without its target', async () => {
    const hidden = Object.defineProperties(new Response(null), {
      type: { value: 'opaqueredirect' },
      status: { value: 0 },
    });
    const client = createClient({ url: 'http://plants.lan', token: 'secret', fetch: async () => hidden });
    await assert.rejects(client.deletePlant(7), {
      message: 'DELETE http://plants.lan/plants/7 was redirected; fix the option url',
      status: undefined,
    });
  });
});

describe('options of a call', () => {
  test('timeoutMs and retries → instead of those of the client', async (t) => {
    const attempts: number[] = [];
    const url = await serve(t, () => undefined);
    const afterAttempt: ClientOptions['afterAttempt'] = ({ attempt }) => void attempts.push(attempt);
    const client = createClient({ url, token: 'secret', retries: 0, afterAttempt });
    const options = { timeoutMs: 50, retries: 2 };
    const rejection = { message: /within 50 ms; raise timeoutMs$/, outcomeUnknown: true };
    await assert.rejects(client.createPlant(FERN, options), rejection);
    await assert.rejects(client.deletePlant(7, options), rejection);
    await assert.rejects(Array.fromAsync(client.listPlants(options)), {
      ...rejection,
      message: /within 50 ms; raise timeoutMs or lower pageSize$/,
    });
    assert.deepEqual(attempts, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
  });
});

test('503 after the extra attempt with a new token → retried as often as without it', async (t) => {
  let requests = 0;
  const url = await serve(t, (_request, response) => {
    requests += 1;
    response.writeHead(requests === 1 ? 401 : 503).end();
  });
  const client = createClient({ url, token: () => `plt_${requests}`, retries: 1 });
  await assert.rejects(client.deletePlant(7), { status: 503 });
  assert.equal(requests, 3);
});

describe('Retry-After', () => {
  for (const [form, render] of [
    ['a number', () => '30'],
    ['an IMF date', (date: Date) => date.toUTCString()],
    ['an RFC 850 date', rfc850Of],
    ['an asctime date', asctimeOf],
  ] as const) {
    for (const zone of ['America/New_York', 'Asia/Tokyo']) {
      test(`${form} in 30 s, in the time zone ${zone} → a pause of 30 s`, async (t) => {
        setZone(t, zone);
        assertPause(
          await pauseAfter(t, () => ({ 'retry-after': render(new Date(Date.now() + 30_000)) })),
          30,
        );
      });
    }
  }

  test('30 → a random pause is added', async (t) => {
    const pause = (await pauseAfter(t, () => ({ 'retry-after': '30' }))) ?? 0;
    assert.ok(pause >= 30_050 && pause <= 30_100, `${pause} ms`);
  });

  test('60 → a pause of 60 s; 61 → the call fails at once', async (t) => {
    assertPause(await pauseAfter(t, () => ({ 'retry-after': '60' })), 60);
    assert.equal(await pauseAfter(t, () => ({ 'retry-after': '61' })), undefined);
  });

  for (const [value, seconds] of [
    ['30 ', 30],
    ['\t30', 30],
    ['30, 30', 30],
    ['5 ,30,7', 30],
    ['5; 30', 0],
    ['30, ', 0],
  ] as const) {
    test(`"${value}" → a pause of ${seconds} s`, async (t) => {
      assertPause(await pauseAfter(t, () => ({ 'retry-after': value })), seconds);
    });
  }

  for (const skew of [-3_600_000, 3_600_000]) {
    for (const render of [(date: Date) => date.toUTCString(), asctimeOf]) {
      // One reading of the clock: the dates are precise to a second, which could end between two.
      const now = Date.now() + skew;
      const [date, later] = [now, now + 30_000].map((ms) => render(new Date(ms)));
      test(`${later} of a server whose Date is ${date} → a pause of 30 s`, async (t) => {
        assertPause(await pauseAfter(t, () => ({ date, 'retry-after': later })), 30);
      });
    }
  }

  test('a date, and a Date header that is none → the clock of this machine counts', async (t) => {
    const headers = (): OutgoingHttpHeaders => ({
      date: 'today',
      'retry-after': new Date(Date.now() + 30_000).toUTCString(),
    });
    assertPause(await pauseAfter(t, headers), 30);
  });
});

test('the pauses of all retries → outlast a restart of the service, and leave the first one short', (t) => {
  for (const [random, pauses] of [
    [0, [50, 200, 800, 2_500]],
    [1, [100, 400, 1_600, 5_000]],
  ] as const) {
    const { mock } = t.mock.method(Math, 'random', () => random);
    const numbers = Array.from({ length: DEFAULTS.retries }, (_, index) => index + 1);
    assert.deepEqual(
      numbers.map((retry) => pauseBefore(retry, undefined)),
      pauses,
    );
    assert.equal(pauseBefore(1_000, undefined), pauses.at(-1));
    mock.restore();
  }
});

/** Resolves to the pause in milliseconds after a 503 with the given headers; undefined if the call failed at once. */
async function pauseAfter(t: TestContext, headers: () => OutgoingHttpHeaders): Promise<number | undefined> {
  const url = await serve(t, (_request, response) => {
    // Node's own Date header may be that of the second before, if the process stalls.
    response.sendDate = false;
    response.writeHead(503, headers()).end('{"error":50301,"message":"overloaded"}');
  });
  const enough = new AbortController();
  let pause: number | undefined;
  const afterAttempt: ClientOptions['afterAttempt'] = ({ retryInMs }) => {
    pause = retryInMs;
    enough.abort();
  };
  const client = createClient({ url, token: 'secret', afterAttempt });
  await assert.rejects(
    client.deletePlant(7, { signal: enough.signal }),
    ({ name }: Error) => name === (pause === undefined ? 'PlantStoreError' : 'AbortError'),
  );
  return pause;
}

/** A date is precise to a second, a slow machine takes some, and the random part is up to 100 ms. */
function assertPause(pause: number | undefined, seconds: number): void {
  assert.ok(pause !== undefined && pause >= (seconds - 10) * 1_000, `${pause} ms`);
  assert.ok(pause <= seconds * 1_000 + 200, `${pause} ms`);
}

/** Changes the time zone of this process until the test ends. */
function setZone(t: TestContext, zone: string): void {
  const { TZ = 'UTC' } = process.env;
  process.env.TZ = zone;
  t.after(() => {
    process.env.TZ = TZ;
  });
}

/** Such as `Sunday, 06-Nov-94 08:49:37 GMT`. */
function rfc850Of(date: Date): string {
  const [, day, month, year, time] = date.toUTCString().split(' ');
  const weekday = date.toLocaleDateString('en', { weekday: 'long', timeZone: 'UTC' });
  return `${weekday}, ${day}-${month}-${year?.slice(2)} ${time} GMT`;
}

/** Such as `Sun Nov  6 08:49:37 1994`. */
function asctimeOf(date: Date): string {
  const [weekday, day, month, year, time] = date.toUTCString().split(' ');
  return `${weekday?.slice(0, 3)} ${month} ${day?.replace(/^0/, ' ')} ${time} ${year}`;
}

describe('hooks', () => {
  test('a retry and a success → called before and after each attempt, without the token', async (t) => {
    const received: unknown[] = [];
    const url = await serve(t, (request, response) => {
      received.push([request.headers['x-attempt'], request.headers.authorization]);
      response.setHeader('x-request-id', `r${received.length}`);
      if (received.length === 1) response.writeHead(503).end('{"error":50301,"message":"overloaded"}');
      else response.end('{"name":"Fern"}');
    });
    const before: unknown[] = [];
    const after: AttemptEnd[] = [];
    const client = createClient({
      url,
      token: 'secret',
      beforeAttempt: ({ headers, ...facts }) => {
        before.push({ ...facts, names: [...headers.keys()] });
        headers.set('x-attempt', `${facts.attempt}`);
        headers.set('authorization', 'from the hook');
      },
      afterAttempt: (attempt) => void after.push(attempt),
    });
    await client.createPlant(FERN);
    const facts = { operation: 'createPlant', method: 'POST', url: `${url}/plants` };
    const names = ['content-type', 'idempotency-key'];
    assert.deepEqual(before, [
      { ...facts, attempt: 1, names },
      { ...facts, attempt: 2, names },
    ]);
    assert.deepEqual(received, [
      ['1', 'Bearer secret'],
      ['2', 'Bearer secret'],
    ]);
    const [first, second] = after;
    assert.deepEqual([first?.attempt, first?.response?.status, first?.response?.requestId], [1, 503, 'r1']);
    assert.ok(first?.error instanceof PlantStoreError && first.error.code === 50301);
    assert.ok(first.retryInMs !== undefined && first.retryInMs < 100);
    assert.deepEqual(
      [second?.attempt, second?.response?.status, second?.response?.requestId],
      [2, 200, 'r2'],
    );
    assert.deepEqual([second?.error, second?.retryInMs], [undefined, undefined]);
    for (const { ms } of after) assert.ok(ms > 0 && ms < 10_000);
  });

  test('a header that the client or fetch sets, set or removed by beforeAttempt → TypeError, and no request', async () => {
    for (const [name, value] of [
      ['Content-Length', '3'],
      ['transfer-encoding', 'chunked'],
      ['idempotency-key', 'another'],
      ['idempotency-key', undefined],
      ['content-type', undefined],
    ] as const) {
      let requests = 0;
      const fetch = (): Promise<never> => {
        requests += 1;
        return Promise.reject(new Error('sent'));
      };
      const beforeAttempt: ClientOptions['beforeAttempt'] = ({ headers }) =>
        value === undefined ? headers.delete(name) : headers.set(name, value);
      const client = createClient({ url: 'http://h', token: 'secret', fetch, beforeAttempt });
      await assert.rejects(client.createPlant(FERN), {
        name: 'TypeError',
        message: `beforeAttempt cannot set the header ${name.toLowerCase()}: the client or fetch sets it`,
      });
      assert.equal(requests, 0);
    }
  });

  test('each way to fail → called with the error, and without a next attempt', async (t) => {
    const after: AttemptEnd[] = [];
    const afterAttempt: ClientOptions['afterAttempt'] = (attempt) => void after.push(attempt);
    const reason = new Error('enough');
    const controller = new AbortController();
    const silent = await serve(t, () => controller.abort(reason));
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    const noToken = () => Promise.reject(reason);
    for (const [url, token, error] of [
      [nowhere, 'secret', /no answer from DELETE/],
      [nowhere, noToken, /no token for DELETE/],
    ] as const) {
      const client = createClient({ url, token, retries: 0, afterAttempt });
      await assert.rejects(client.deletePlant(7), error);
    }
    const aborted = createClient({ url: silent, token: 'secret', afterAttempt });
    await assert.rejects(aborted.deletePlant(7, { signal: controller.signal }), reason);
    assert.deepEqual(
      after.map(({ response, retryInMs, error }) => [response, retryInMs, error instanceof PlantStoreError]),
      [
        [undefined, undefined, true],
        [undefined, undefined, true],
        [undefined, undefined, false],
      ],
    );
    assert.equal(after[2]?.error, reason);
  });

  test('aborted with the error of another call, a 401 → called without a next attempt', async () => {
    const after: AttemptEnd[] = [];
    const reason = new PlantStoreError('no', { status: 401, outcomeUnknown: false });
    const controller = new AbortController();
    const fetch = async (): Promise<never> => {
      controller.abort(reason);
      throw reason;
    };
    const client = createClient({
      url: 'http://h',
      token: async () => 'secret',
      fetch,
      afterAttempt: (attempt) => void after.push(attempt),
    });
    await assert.rejects(client.deletePlant(7, { signal: controller.signal }), reason);
    assert.deepEqual(
      after.map(({ error, retryInMs }) => [error, retryInMs]),
      [[reason, undefined]],
    );
  });

  for (const [status, body, link] of [
    [200, '<html>log in</html>', ''],
    [200, '{"name":7}', ''],
    [202, '{"name":"Fern"}', ''],
    [200, '[]', '<>; rel="next"'],
  ] as const) {
    test(`${status} with ${body} and the link ${link}, which no Plant Store sends → afterAttempt gets the error of the call`, async (t) => {
      const url = await serve(t, (_request, response) => response.writeHead(status, { link }).end(body));
      const errors: unknown[] = [];
      const afterAttempt: ClientOptions['afterAttempt'] = ({ error }) => void errors.push(error);
      const client = createClient({ url, token: 'secret', afterAttempt });
      for (const call of [
        () => client.createPlant(FERN),
        () => Array.fromAsync(client.listPlants()),
        () => client.deletePlant(7),
      ]) {
        const failure: unknown = await call().catch((error: unknown) => error);
        assert.ok(failure instanceof PlantStoreError && failure.status === status && failure.outcomeUnknown);
        assert.equal(errors.at(-1), failure);
      }
      assert.equal(errors.length, 3);
    });
  }

  test('a signal that is already aborted → neither hook is called', async () => {
    const hooked: unknown[] = [];
    const hook = (attempt: Attempt): void => void hooked.push(attempt);
    const hooks = { beforeAttempt: hook, afterAttempt: hook };
    const client = createClient({ url: 'http://plants.example', token: 'secret', ...hooks });
    const reason = new Error('enough');
    const options = { signal: AbortSignal.abort(reason) };
    await assert.rejects(client.createPlant(FERN, options), reason);
    await assert.rejects(Array.fromAsync(client.listPlants(options)), reason);
    await assert.rejects(client.deletePlant(7, options), reason);
    assert.deepEqual(hooked, []);
  });

  test('that keeps the headers → does not get the token', async (t) => {
    const url = await serve(t, (_request, response) => response.writeHead(204).end());
    const kept: Headers[] = [];
    const beforeAttempt: ClientOptions['beforeAttempt'] = ({ headers }) => void kept.push(headers);
    await createClient({ url, token: 'secret', beforeAttempt }).deletePlant(7);
    assert.deepEqual(
      kept.map((headers) => [...headers]),
      [[]],
    );
  });

  test('that throws → ends the call with its error', async (t) => {
    let requests = 0;
    const url = await serve(t, (_request, response) => {
      requests += 1;
      response.writeHead(503).end();
    });
    const thrown = new Error('the hook failed');
    const hook = (): never => {
      throw thrown;
    };
    await assert.rejects(createClient({ url, token: 'secret', beforeAttempt: hook }).deletePlant(7), thrown);
    assert.equal(requests, 0);
    await assert.rejects(createClient({ url, token: 'secret', afterAttempt: hook }).deletePlant(7), thrown);
    assert.equal(requests, 1);
  });
});

/** Runs a program of a user, with flags of Node and environment variables. The client is imported from its sources. */
async function runProgram(
  program: string,
  flags: readonly string[] = [],
  env = process.env,
): Promise<{ stdout: string; ms: number }> {
  const source = `import { createClient } from '${new URL('../../client/src/client.ts', import.meta.url)}';\n${program}`;
  const start = performance.now();
  const args = [...flags, '--input-type=module', '--eval', source];
  const { stdout } = await promisify(execFile)(process.execPath, args, { env });
  return { stdout, ms: performance.now() - start };
}

describe('a process with nothing else to do', () => {
  test('a token function that never settles → the call rejects by its timeout', async () => {
    const { stdout } = await runProgram(`
      const token = () => new Promise(() => {});
      const client = createClient({ url: 'http://127.0.0.1:8080', token, timeoutMs: 50 });
      await client.deletePlant(7).catch(({ message }) => console.log(message));
      await Array.fromAsync(client.listPlants()).catch(({ message }) => console.log(message));`);
    assert.equal(
      stdout,
      'no token for DELETE http://127.0.0.1:8080/plants/7 within 50 ms; raise timeoutMs\n' +
        'no token for GET http://127.0.0.1:8080/plants within 50 ms; raise timeoutMs\n',
    );
  });

  test('a platform without URL.canParse → a client', async () => {
    const { stdout } = await runProgram(`
      delete URL.canParse;
      const { createPlant } = createClient({ url: 'http://127.0.0.1:8080', token: 'secret' });
      console.log(typeof createPlant);`);
    assert.equal(stdout, 'function\n');
  });

  test('a call has ended → its timer does not keep the process alive', async (t) => {
    const url = await serve(t, (_request, response) => response.writeHead(204).end());
    const { ms } = await runProgram(`
      await createClient({ url: '${url}', token: 'secret', timeoutMs: 60_000 }).deletePlant(7);
      await createClient({ url: '${url}', token: () => Promise.reject(), timeoutMs: 60_000 }).deletePlant(7).catch(() => {});`);
    assert.ok(ms < 30_000, `${ms} ms`);
  });
});

test('16 MiB of JSON escapes in a compressed page → the call rejects, in a heap of 256 MiB', async (t) => {
  const page = gzipSync(Buffer.alloc(16 * 2 ** 20, '\\/'));
  const url = await serve(t, (_request, response) =>
    response.writeHead(200, { 'content-encoding': 'gzip' }).end(page),
  );
  const { stdout } = await runProgram(
    `const client = createClient({ url: '${url}', token: 'plt_secret', timeoutMs: 60_000 });
    await client.listPlants().pages().next().catch(({ message }) => console.log(message));`,
    ['--max-old-space-size=256'],
  );
  assert.match(stdout, /its body begins with "\/{100}"; is the option url right\?$/m);
});

test('a page of 1 MiB in chunks of 1 byte → listed, in a heap of 64 MiB', async (t) => {
  const page = '[{"name":"Fern"}]'.padStart(2 ** 20);
  const chunks = Buffer.from(`${page.replace(/./g, '1\r\n$&\r\n')}0\r\n\r\n`);
  const url = await serve(t, ({ socket }) => {
    socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
    socket.write(chunks);
  });
  const { stdout } = await runProgram(
    `const client = createClient({ url: '${url}', token: 'plt_secret', timeoutMs: 60_000, retries: 0 });
    for await (const { name } of client.listPlants()) console.log(name);`,
    ['--max-old-space-size=64'],
  );
  assert.equal(stdout, 'Fern\n');
});

for (const status of ['403 Forbidden', '407 Proxy Authentication Required', '502 Bad Gateway']) {
  test(`a proxy that answers CONNECT with ${status} → outcomeUnknown is false, and the message says so`, async (t) => {
    const answer = `HTTP/1.1 ${status}\r\n\r\n`;
    const proxy = createServer((socket) => socket.once('data', () => socket.end(answer)));
    t.after(() => proxy.close());
    const env = { https_proxy: `http://127.0.0.1:${await listenOnFreePort(proxy)}` };
    const { stdout } = await runProgram(
      `const client = createClient({ url: 'https://plants.example', token: 'plt_secret', retries: 0 });
      await client.deletePlant(7).catch(({ message, outcomeUnknown }) => console.log(message, outcomeUnknown));`,
      ['--use-env-proxy'],
      env,
    );
    assert.match(stdout, new RegExp(`\\(Proxy response \\(${status.slice(0, 3)}\\) .*\\) false$`, 'm'));
  });
}

test('the token comes after the timeout → nothing is sent with it', async () => {
  const token = Promise.withResolvers<string>();
  const sent: unknown[] = [];
  const client = createClient({
    url: 'http://plants.lan',
    token: () => token.promise,
    fetch: async (url) => {
      sent.push(url);
      return new Response(null, { status: 204 });
    },
  });
  await assert.rejects(client.deletePlant(7, { timeoutMs: 1 }), { outcomeUnknown: false });
  token.resolve('plt_late');
  await nextIteration();
  assert.deepEqual(sent, []);
});

/** Responses as libraries other than the platform's `fetch` return them. */
const RESPONSES: Readonly<Record<string, (text: string) => object>> = {
  'with a Node stream as its body': (text) => ({ body: Readable.from([Buffer.from(text)]) }),
  'without a body': () => ({}),
  'whose body is null': () => ({ body: null }),
};

describe('fetch of the user', () => {
  for (const [title, partOf] of Object.entries(RESPONSES)) {
    test(`that resolves to a response ${title} → its text is read`, async (t) => {
      const requests: unknown[] = [];
      const url = await serve(t, ({ method }, response) => {
        requests.push(method);
        response.writeHead(method === 'DELETE' ? 400 : 200, { 'x-request-id': 'r1' });
        response.end(
          { GET: '[{"name":"Fern"}]', POST: '{"name":"Fern"}' }[`${method}`] ??
            '{"error":40000,"message":"no"}',
        );
      });
      const similar: Fetch = async (target, request) => {
        const { status, headers, ...response } = await fetch(target, request).then(async (given) => ({
          status: given.status,
          headers: given.headers,
          text: await given.text(),
        }));
        return { status, headers, text: async () => response.text, ...partOf(response.text) };
      };
      const client = createClient({ url, token: 'secret', fetch: similar });
      const { plant, requestId } = await client.createPlant(FERN);
      assert.deepEqual([plant, requestId], [{ name: 'Fern' }, 'r1']);
      assert.deepEqual(await Array.fromAsync(client.listPlants()), [{ name: 'Fern' }]);
      await assert.rejects(client.deletePlant(7), { code: 40000 });
      assert.deepEqual(requests, ['POST', 'GET', 'DELETE']);
      const strict = createClient({ url, token: 'secret', fetch: similar, maxBodyBytes: 16 });
      await assert.rejects(Array.fromAsync(strict.listPlants()), { message: /exceeds 16 bytes/ });
    });
  }

  test('that changes the URL it gets → no other attempt and no hook gets that URL', async (t) => {
    const paths: unknown[] = [];
    const url = await serve(t, ({ url: path }, response) => {
      paths.push(path);
      if (paths.length === 1) response.writeHead(503).end();
      else if (paths.length === 2) response.end('{"name":"Fern"}');
      else response.end('[]');
    });
    const throughGateway: Fetch = (target, request) => {
      target.pathname = `/gateway${target.pathname}`;
      target.searchParams.set('key', 'k');
      return fetch(target, request);
    };
    const hooked = new Set<string>();
    const hook = (attempt: Attempt): void => void hooked.add(attempt.url);
    const hooks = { beforeAttempt: hook, afterAttempt: hook };
    const client = createClient({ url, token: 'secret', fetch: throughGateway, ...hooks });
    await client.createPlant(FERN);
    assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
    assert.deepEqual(paths, [
      '/gateway/plants?key=k',
      '/gateway/plants?key=k',
      '/gateway/plants?limit=1000&key=k',
    ]);
    assert.deepEqual([...hooked], [`${url}/plants`, `${url}/plants?limit=1000`]);
  });

  test('that replaces the one of the platform after createClient → called, until it is restored', async (t) => {
    const url = await serve(t, (_request, response) => response.writeHead(204).end());
    const client = createClient({ url, token: 'secret' });
    const { mock } = t.mock.method(globalThis, 'fetch');
    await client.deletePlant(7);
    mock.restore();
    await client.deletePlant(7);
    assert.equal(mock.callCount(), 1);
  });

  test('that neither the platform nor the options have → a TypeError, and no retry', async (t) => {
    const client = createClient({ url: 'http://plants.example', token: 'secret' });
    t.mock.property(globalThis, 'fetch', undefined);
    await assert.rejects(client.deletePlant(7), {
      name: 'TypeError',
      message: 'this platform has no fetch; give the option fetch',
    });
  });

  test('that ignores its signal → the call still ends by its timeout, and by its signal', async () => {
    const reason = new Error('enough');
    const controller = new AbortController();
    let calls = 0;
    const fetch = () => {
      calls += 1;
      if (calls === 2) setImmediate(() => controller.abort(reason));
      return new Promise<never>(() => {});
    };
    const client = createClient({ url: 'http://plants.example', token: 'secret', retries: 0, fetch });
    await assert.rejects(client.deletePlant(7, { timeoutMs: 20 }), /within 20 ms; raise timeoutMs$/);
    await assert.rejects(client.deletePlant(7, { signal: controller.signal }), reason);
  });

  for (const [error, isUnknown] of [
    // As Deno 2 and Bun 1.4 word them.
    [
      'error sending request for url (http://h/plants): client error (Connect): tcp connect error: Connection timed out (os error 110)',
      false,
    ],
    [
      'error sending request for url (http://h/plants): client error (Connect): dns error: failed to lookup address information',
      false,
    ],
    [
      'error sending request for url (http://h/plants): client error (SendRequest): connection closed before message completed',
      true,
    ],
    ['Fetch failed: Requests to port 22 are blocked', false],
    ['Requires net access to "h:80", run again with the --allow-net flag', false],
    // cspell:disable-next-line
    ['Proxy refused to open a tunnel: 403 Forbidden', false],
  ] as const) {
    test(`on Deno or Bun: ${error} → outcomeUnknown is ${isUnknown}`, async () => {
      await rejectsWith(new TypeError(error), isUnknown);
      await rejectsWith(new TypeError('fetch failed', { cause: new Error(error) }), isUnknown);
    });
  }

  for (const [fields, isUnknown] of [
    [{ code: 'EHOSTUNREACH', syscall: 'connect' }, false],
    [{ code: 'ETIMEDOUT', syscall: 'connect' }, false],
    [{ code: 'ECONNRESET', syscall: 'connect' }, false],
    [{ code: 'EAI_FAIL', syscall: 'getaddrinfo' }, false],
    [{ code: 'ECONNREFUSED', syscall: 'queryA' }, false],
    [{ code: 'EHOSTUNREACH', syscall: 'read' }, true],
    [{ code: 'ETIMEDOUT', syscall: 'read' }, true],
    [{ code: 'ECONNRESET', syscall: 'write' }, true],
    [{ code: 'UND_ERR_CONNECT_TIMEOUT' }, false],
    [{ code: 'UND_ERR_HEADERS_TIMEOUT' }, true],
    [{ code: 'CERT_HAS_EXPIRED' }, false],
    // Bun has codes without system calls.
    [{ code: 'ENETUNREACH' }, false],
    [{ code: 'EHOSTUNREACH' }, false],
    [{ code: 'ECONNRESET' }, true],
    [{ code: 'ETIMEDOUT' }, true],
    // Bun's "The TLS handshake failed", which it also says after a request was sent.
    [{ code: 'EPROTO' }, true],
  ] as const) {
    test(`that rejects with ${inspect(fields)} → outcomeUnknown is ${isUnknown}`, async () => {
      const error = Object.assign(new Error('failed'), fields);
      await rejectsWith(error, isUnknown);
      await rejectsWith(new TypeError('fetch failed', { cause: error }), isUnknown);
      const cancelled = new Error('Request was cancelled.', { cause: error });
      await rejectsWith(new TypeError('fetch failed', { cause: cancelled }), isUnknown);
    });
  }

  test('that rejects with an error for each address → outcomeUnknown is false if none was reached', async () => {
    const timeout = Object.assign(new Error('failed'), { code: 'ETIMEDOUT', syscall: 'connect' });
    const reset = Object.assign(new Error('failed'), { code: 'ECONNRESET', syscall: 'read' });
    await rejectsWith(new AggregateError([timeout, timeout]), false);
    await rejectsWith(new AggregateError([timeout, reset]), true);
    await rejectsWith(new AggregateError([]), true);
  });

  test('that rejects with an error among whose errors and causes it is itself → a PlantStoreError', async () => {
    const error = new AggregateError([]);
    error.errors.push(error);
    await rejectsWith(error, true);
    error.cause = error;
    await rejectsWith(error, true);
  });
});

/** Checks `outcomeUnknown` of a call whose fetch rejects with `error`. */
async function rejectsWith(error: Error, isUnknown: boolean): Promise<void> {
  const fetch = () => Promise.reject(error);
  const client = createClient({ url: 'http://h', token: 'secret', retries: 0, fetch });
  await assert.rejects(client.createPlant(FERN), { outcomeUnknown: isUnknown });
}

test('an error of another copy of the package is an instance too', () => {
  const other = class PlantStoreError extends Error {
    override readonly name = 'PlantStoreError';
  };
  assert.ok(new other() instanceof PlantStoreError);
  assert.ok(!(new Error('no') instanceof PlantStoreError));
  assert.ok(!(Object('PlantStoreError') instanceof PlantStoreError));
});

test('a subclass of PlantStoreError has only its instances', () => {
  class Quota extends PlantStoreError {}
  const [general, special] = [PlantStoreError, Quota].map(
    (type) => new type('no', { outcomeUnknown: false }),
  );
  assert.ok(special instanceof Quota && special instanceof PlantStoreError);
  assert.ok(general instanceof PlantStoreError && !(general instanceof Quota));
});
