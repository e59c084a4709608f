import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { type Client, type ClientOptions, createClient, type NewPlant } from '../../client/src/client.ts';
import { isIdempotencyKey } from '../../src/plant.ts';

/** The headers of each request that a test sends. */
const sent: Headers[] = [];
const base: ClientOptions = {
  url: 'http://127.0.0.1:8080',
  token: 'none',
  retries: 0,
  fetch: async (_url, init) => {
    sent.push(new Headers(init?.headers));
    return new Response('[]');
  },
};

/** Values that callers without types can pass. */
function createUnchecked(options: object): Client {
  return Reflect.apply(createClient, undefined, [{ ...base, ...options }]);
}

/** The ways to give an option of a call. */
const CALLS = {
  createPlant: (client: Client, options: object) =>
    Reflect.apply(client.createPlant, undefined, [{ id: 7, name: 'Fern' }, options]),
  listPlants: async (client: Client, options: object) =>
    Array.fromAsync(Reflect.apply(client.listPlants, undefined, [options])),
  deletePlant: (client: Client, options: object) =>
    Reflect.apply(client.deletePlant, undefined, [7, options]),
} satisfies Record<keyof Client, (client: Client, options: object) => Promise<unknown>>;

describe('an invalid option is rejected at once, with the valid range', () => {
  const numbers = [Number.NaN, Number.POSITIVE_INFINITY, 3e9, -1, 1.5, '5', 5n, null];
  for (const [option, min] of [
    ['timeoutMs', 1],
    ['retries', 0],
    ['pageSize', 1],
    ['maxBodyBytes', 1],
  ] as const) {
    for (const value of min === 1 ? [...numbers, 0] : numbers) {
      test(`${option}: ${inspect(value)}`, async () => {
        const rejection = {
          name: 'RangeError',
          message: `the option ${option} must be an integer from ${min} to 2147483647, not ${value}`,
        };
        if (option === 'pageSize') {
          const list = (): unknown =>
            Reflect.apply(createClient(base).listPlants, undefined, [{ pageSize: value }]);
          assert.throws(list, rejection);
        } else {
          assert.throws(() => createUnchecked({ [option]: value }), rejection);
          for (const call of option === 'maxBodyBytes' ? [] : Object.values(CALLS))
            await assert.rejects(call(createClient(base), { [option]: value }), rejection);
        }
        assert.deepEqual(sent, []);
      });
    }
  }

  for (const [headers, name] of [
    [{ 'two words': 'x' }, '"two words"'],
    [{ '': 'x' }, '""'],
    [{ 'x\r\ny': 'x' }, '"x\\r\\ny"'],
    [{ Authorization: 'Bearer x' }, '"Authorization"'],
    [{ 'Idempotency-Key': 'x' }, '"Idempotency-Key"'],
    [new Headers({ 'Content-Type': 'x' }), '"content-type"'],
    [{ 'Content-Length': '3' }, '"Content-Length"'],
    [{ 'transfer-encoding': 'chunked' }, '"transfer-encoding"'],
    [{ connection: 'close' }, '"connection"'],
    [{ 'keep-alive': 'timeout=5' }, '"keep-alive"'],
    [{ expect: '100-continue' }, '"expect"'],
    [{ host: 'elsewhere' }, '"host"'],
    [{ te: 'trailers' }, '"te"'],
    [{ trailer: 'x' }, '"trailer"'],
    [{ upgrade: 'h2c' }, '"upgrade"'],
    [{ 'X-Secret': 'a\r\nb' }, '"X-Secret"'],
    [{ 'X-Secret': 'キー' }, '"X-Secret"'],
    [{ 'X-Secret': undefined }, '"X-Secret"'],
    [{ 'X-Secret': 7 }, '"X-Secret"'],
  ] as const) {
    test(`headers: ${inspect(headers)}`, async () => {
      const message = `the option headers cannot have ${name}: invalid, or set by the client`;
      const rejection = { name: 'TypeError', message };
      assert.throws(() => createUnchecked({ headers }), rejection);
      for (const call of Object.values(CALLS))
        await assert.rejects(call(createClient(base), { headers }), rejection);
      assert.deepEqual(sent, []);
    });
  }

  for (const url of [
    'https://plants.example/v1?key=secret',
    'https://plants.example/v1?token=secret#',
    'https://plants.example/#secret',
    'https://user:secret@plants.example',
    'https://secret@plants.example/v1',
    new URL('https://:secret@plants.example/v1'),
  ]) {
    test(`url: ${url}`, () => {
      const message =
        'the option url must have no query, fragment, user or password; the option fetch can add them';
      assert.throws(() => createUnchecked({ url }), { name: 'TypeError', message });
    });
  }

  for (const signal of [new AbortController(), 'now', 0, '', true]) {
    test(`signal: ${inspect(signal)}`, async () => {
      const rejection = { name: 'TypeError', message: 'the option signal must be an AbortSignal' };
      for (const call of Object.values(CALLS))
        await assert.rejects(call(createClient(base), { signal }), rejection);
      assert.deepEqual(sent, []);
    });
  }

  for (const option of ['fetch', 'beforeAttempt', 'afterAttempt']) {
    for (const value of [5, null, 'log', {}]) {
      test(`${option}: ${inspect(value)}`, () => {
        const message = `the option ${option} must be a function`;
        assert.throws(() => createUnchecked({ [option]: value }), { name: 'TypeError', message });
        assert.deepEqual(sent, []);
      });
    }
  }

  for (const cursor of [null, {}, 5, true]) {
    test(`cursor: ${inspect(cursor)}`, () => {
      const list = (): unknown => Reflect.apply(createClient(base).listPlants, undefined, [{ cursor }]);
      assert.throws(list, {
        name: 'TypeError',
        message: 'the option cursor must be the cursor of a page, or undefined',
      });
      assert.deepEqual(sent, []);
    });
  }

  const keys = ['', 'two words', 'a\nb', 'キー', 'é', 'x'.repeat(256), 7, null];
  for (const idempotencyKey of keys) {
    test(`idempotencyKey: ${inspect(idempotencyKey)}`, async () => {
      assert.ok(typeof idempotencyKey !== 'string' || !isIdempotencyKey(idempotencyKey));
      await assert.rejects(CALLS.createPlant(createClient(base), { idempotencyKey }), {
        name: 'TypeError',
        message: 'the option idempotencyKey must be 1 to 255 visible ASCII characters',
      });
      assert.deepEqual(sent, []);
    });
  }
});

describe('a valid option', () => {
  test('at both ends of its range → accepted', async () => {
    for (const options of [
      { timeoutMs: 1, retries: 0, maxBodyBytes: 1 },
      { timeoutMs: 2 ** 31 - 1, retries: 2 ** 31 - 1, maxBodyBytes: 2 ** 31 - 1 },
    ]) {
      createClient({ ...base, ...options });
      assert.deepEqual(
        await Array.fromAsync(createClient(base).listPlants({ pageSize: 1, timeoutMs: 2 ** 31 - 1 })),
        [],
      );
    }
    for (const idempotencyKey of ['!', '~', 'x'.repeat(255)]) {
      assert.ok(isIdempotencyKey(idempotencyKey));
      sent.length = 0;
      await assert.rejects(
        CALLS.createPlant(createClient(base), { idempotencyKey }),
        /is the option url right/,
      );
      assert.equal(sent[0]?.get('idempotency-key'), idempotencyKey);
    }
  });

  test('headers of the client and of a call → both are sent; those of the call win', async () => {
    for (const headers of [{ 'x-one': '2', 'X-Two': 'é' }, new Headers({ 'x-one': '2', 'X-Two': 'é' })]) {
      sent.length = 0;
      const client = createClient({ ...base, headers: { 'X-One': '1', 'X-Three': '3' } });
      await Array.fromAsync(client.listPlants({ headers }));
      const names = ['x-one', 'x-two', 'x-three', 'authorization'];
      assert.deepEqual(
        names.map((name) => sent[0]?.get(name)),
        ['2', 'é', '3', 'Bearer none'],
      );
    }
  });

  test('signal: null → as absent, as in fetch', async () => {
    assert.deepEqual(await CALLS.listPlants(createClient(base), { signal: null }), []);
  });

  for (const [operation, call] of Object.entries(CALLS))
    test(`that is inherited, as the signal of an AbortController, has its effect: ${operation}`, async () => {
      const controller = new AbortController();
      controller.abort(new Error('enough'));
      await assert.rejects(call(createClient(base), controller), { message: 'enough' });
    });

  test('that is undefined counts as absent, also for the compiler', async () => {
    const absent = undefined as string | undefined;
    const options = { timeoutMs: undefined, retries: undefined, headers: undefined, signal: undefined };
    const only = { beforeAttempt: undefined, afterAttempt: undefined, maxBodyBytes: undefined };
    const client = createClient({ ...base, ...options, ...only });
    const plant: NewPlant = { id: 7, name: 'Fern', tag: absent };
    await assert.rejects(
      client.createPlant(plant, { ...options, idempotencyKey: absent }),
      /is the option url right/,
    );
    const list = client.listPlants({ ...options, pageSize: undefined, cursor: absent });
    assert.deepEqual(await Array.fromAsync(list), []);
  });
});
