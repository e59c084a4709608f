import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { INT64_MAX, INT64_MIN, type Plant } from '../../src/plant.ts';
import { engines } from '../support/engines.ts';
import { bearer, startService, type TestService } from '../support/service.ts';

const TWO_TO_53 = 2n ** 53n;

/** Ids at the edges of double, int32, int64 and sign. Few, so that commands use the same ids. */
const INTERESTING_IDS = [
  INT64_MIN,
  INT64_MIN + 1n,
  -TWO_TO_53 - 1n,
  -TWO_TO_53,
  -(2n ** 31n) - 1n,
  -1n,
  0n,
  1n,
  2n ** 32n,
  TWO_TO_53,
  TWO_TO_53 + 1n,
  INT64_MAX - 1n,
  INT64_MAX,
];

const anyInt64 = fc.oneof(fc.bigInt({ min: INT64_MIN, max: INT64_MAX }), fc.constantFrom(...INTERESTING_IDS));
const beyondInt64 = fc.oneof(
  fc.bigInt({ min: INT64_MAX + 1n, max: 10n ** 60n }),
  fc.bigInt({ min: -(10n ** 60n), max: INT64_MIN - 1n }),
  fc.constantFrom(INT64_MAX + 1n, INT64_MIN - 1n, 2n ** 64n, 10n ** 400n),
);
const legalText = fc
  .oneof(fc.string({ unit: 'binary', maxLength: 40 }), fc.string({ unit: 'grapheme', maxLength: 20 }))
  .map((text) => text.replaceAll('\0', ''));

interface Answer {
  readonly status: number;
  readonly body: unknown;
  /** Path and query of the next page, from the Link header. */
  readonly next: string | undefined;
}

/** Sends the requests of one owner. */
class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, token: string) {
    this.#url = url;
    this.#headers = bearer(token);
  }

  /** Creates from a JSON body. */
  create(json: string): Promise<Answer> {
    return this.#send('POST', '/plants', json);
  }

  createPlant(id: bigint, { name, tag }: Plant): Promise<Answer> {
    return this.create(
      `{"id":${id},"name":${JSON.stringify(name)}${tag === undefined ? '' : `,"tag":${JSON.stringify(tag)}`}}`,
    );
  }

  delete(id: bigint | string): Promise<Answer> {
    return this.#send('DELETE', `/plants/${id}`);
  }

  list(target = '/plants'): Promise<Answer> {
    return this.#send('GET', target);
  }

  /** Reads all pages by following the links. */
  async pages(limit: number): Promise<readonly (readonly unknown[])[]> {
    const pages: (readonly unknown[])[] = [];
    for (let target: string | undefined = `/plants?limit=${limit}`; target !== undefined; ) {
      const { status, body, next } = await this.list(target);
      assert.equal(status, 200);
      assert.ok(Array.isArray(body));
      pages.push(body);
      target = next;
    }
    return pages;
  }

  async #send(method: string, target: string, body?: string): Promise<Answer> {
    const headers =
      body === undefined ? this.#headers : { ...this.#headers, 'content-type': 'application/json' };
    const response = await fetch(this.#url + target, {
      method,
      headers,
      ...(body !== undefined && { body }),
    });
    const text = await response.text();
    return {
      status: response.status,
      body: text === '' ? undefined : JSON.parse(text),
      next: /^<([^>]+)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1],
    };
  }
}

/** Creates new owners, so that every run begins with an empty list. */
function createOwners(service: TestService) {
  let count = 0;
  return async (): Promise<Client> => {
    count += 1;
    return new Client(service.url, await service.token(`owner-${count}`));
  };
}

function assertError({ status, body }: Answer, error: number, message: RegExp): void {
  assert.ok(typeof body === 'object' && body !== null && 'error' in body && 'message' in body);
  assert.deepEqual([status, body.error], [Math.floor(error / 100), error]);
  assert.match(String(body.message), message);
}

function byId([a]: readonly [bigint, unknown], [b]: readonly [bigint, unknown]): number {
  return a < b ? -1 : 1;
}

/** The model of the service: a map for each owner. */
type Model = Map<bigint, Plant>[];
type Command = fc.AsyncCommand<Model, readonly Client[]>;

function listOf(model: Model, owner: number): readonly Plant[] {
  return [...(model[owner] ?? [])].sort(byId).map(([, plant]) => plant);
}

/** Creates a command of one owner, for the model and the real service. */
function command(
  name: string,
  owner: number,
  run: (plants: Map<bigint, Plant>, client: Client, model: Model) => Promise<void>,
): Command {
  return {
    check: () => true,
    run: async (model, clients) => {
      const [plants, client] = [model[owner], clients[owner]];
      assert.ok(plants !== undefined && client !== undefined);
      await run(plants, client, model);
    },
    toString: () => `${name} by owner ${owner}`,
  };
}

function createCommand(owner: number, id: bigint, plant: Plant): Command {
  return command(`create ${id} ${JSON.stringify(plant)}`, owner, async (plants, client) => {
    const answer = await client.createPlant(id, plant);
    if (plants.has(id)) return assertError(answer, 40002, /already exists/);
    assert.deepEqual([answer.status, answer.body], [200, plant]);
    plants.set(id, plant);
  });
}

function deleteCommand(owner: number, id: bigint): Command {
  return command(`delete ${id}`, owner, async (plants, client) => {
    const answer = await client.delete(id);
    if (!plants.delete(id)) return assertError(answer, 40400, /no plant/);
    assert.deepEqual([answer.status, answer.body], [204, undefined]);
  });
}

function listCommand(owner: number, limit: number | undefined): Command {
  return command(`list ${limit ?? 'all'}`, owner, async (_plants, client, model) => {
    const answer = await client.list(limit === undefined ? '/plants' : `/plants?limit=${limit}`);
    const expected = listOf(model, owner);
    assert.deepEqual([answer.status, answer.body], [200, expected.slice(0, limit)]);
    assert.equal(answer.next !== undefined, limit !== undefined && limit > 0 && limit < expected.length);
  });
}

/** Changes the list between two pages: lasting plants are listed exactly once, others once or not at all. */
function walkCommand(owner: number, limit: number, id: bigint): Command {
  return command(`walk by ${limit}, creating or deleting ${id} in between`, owner, async (plants, client) => {
    const before = new Map(plants);
    const first = await client.list(`/plants?limit=${limit}`);
    assert.ok(Array.isArray(first.body));
    const listed: unknown[] = [...first.body];
    const firstIds = [...before]
      .sort(byId)
      .slice(0, limit)
      .map(([one]) => one);
    const last = firstIds.at(-1);
    if (plants.has(id)) await deleteCommand(0, id).run([plants], [client]);
    else await createCommand(0, id, { name: 'created in between' }).run([plants], [client]);
    for (let target = first.next; target !== undefined; ) {
      const page = await client.list(target);
      assert.ok(Array.isArray(page.body));
      listed.push(...page.body);
      target = page.next;
    }
    const after = [...plants].sort(byId).filter(([one]) => last !== undefined && one > last);
    const rest = first.next === undefined ? [] : after.map(([, plant]) => plant);
    assert.deepEqual(listed, [...firstIds.map((one) => before.get(one)), ...rest]);
  });
}

const OWNERS = 3;

function anyCommands(): fc.Arbitrary<Iterable<Command>> {
  const owner = fc.nat({ max: OWNERS - 1 });
  const id = fc.constantFrom(...INTERESTING_IDS);
  const plant = fc.record(
    { name: legalText, tag: legalText },
    { requiredKeys: ['name'], noNullPrototype: true },
  );
  const limit = fc.oneof(fc.nat({ max: 5 }), fc.constant(2 ** 31 - 1));
  const create = fc.tuple(owner, id, plant).map((values) => createCommand(...values));
  return fc.commands(
    [
      create,
      create,
      create,
      fc.tuple(owner, id).map((values) => deleteCommand(...values)),
      fc.tuple(owner, fc.option(limit, { nil: undefined })).map((values) => listCommand(...values)),
      fc.tuple(owner, fc.integer({ min: 1, max: 5 }), id).map((values) => walkCommand(...values)),
    ],
    { maxCommands: 60, size: 'max' },
  );
}

/** The parts of the text of a JSON number (RFC 8259 §6). */
interface NumberParts {
  readonly sign: string;
  readonly whole: string;
  readonly fraction: string;
  readonly exponent: { readonly mark: string; readonly sign: string; readonly digits: string } | undefined;
}

function textOf({ sign, whole, fraction, exponent }: NumberParts): string {
  const power = exponent === undefined ? '' : exponent.mark + exponent.sign + exponent.digits;
  return sign + whole + (fraction === '' ? '' : `.${fraction}`) + power;
}

/** Returns the integer value of a JSON number, by exact arithmetic; undefined if it is not an integer. */
function integerOf({ sign, whole, fraction, exponent }: NumberParts): bigint | undefined {
  const power =
    BigInt(exponent === undefined ? 0 : `${exponent.digits}`) * (exponent?.sign === '-' ? -1n : 1n);
  const scale = power - BigInt(fraction.length);
  const digits = BigInt(whole + fraction) * (sign === '-' ? -1n : 1n);
  if (scale >= 0n) return digits * 10n ** scale;
  const divisor = 10n ** -scale;
  return digits % divisor === 0n ? digits / divisor : undefined;
}

const digits = (minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...'0123456789'), minLength, maxLength });
const zeros = (maxLength: number) => fc.nat({ max: maxLength }).map((length) => '0'.repeat(length));
const mark = fc.constantFrom('e', 'E');

/** Any JSON number, often with zeros as its fraction or an exponent that cancels the fraction. */
const anyNumber: fc.Arbitrary<NumberParts> = fc.record({
  sign: fc.constantFrom('', '-'),
  whole: fc.oneof(
    fc.constant('0'),
    fc.tuple(fc.constantFrom(...'123456789'), digits(0, 20), zeros(12)).map((parts) => parts.join('')),
  ),
  fraction: fc.oneof(
    fc.constant(''),
    zeros(30),
    fc.tuple(digits(0, 20), zeros(12)).map((parts) => parts.join('')),
  ),
  exponent: fc.option(
    fc.record({
      mark,
      sign: fc.constantFrom('', '+', '-'),
      digits: fc
        .tuple(zeros(3), fc.oneof(fc.nat({ max: 40 }), fc.nat({ max: 400 })))
        .map((parts) => parts.join('')),
    }),
    { nil: undefined },
  ),
});

/** An int64 with the decimal point moved `places` to the left, and an exponent that moves it back. */
const movedInt64: fc.Arbitrary<NumberParts> = fc
  .tuple(fc.oneof(anyInt64, beyondInt64), fc.nat({ max: 25 }), zeros(10), mark, fc.constantFrom('', '+'))
  .map(([value, places, padding, letter, plus]) => {
    const all = (value < 0n ? -value : value).toString().padStart(places + 1, '0');
    return {
      sign: value < 0n ? '-' : '',
      whole: all.slice(0, all.length - places),
      fraction: all.slice(all.length - places) + padding,
      exponent: { mark: letter, sign: plus, digits: String(places) },
    };
  });

function escapeEverything(text: string): string {
  const units = Array.from(text.split(''), (unit) => unit.charCodeAt(0).toString(16).padStart(4, '0'));
  return `"${units.map((unit) => `\\u${unit}`).join('')}"`;
}

const illegalText = fc
  .tuple(legalText, legalText, fc.oneof(fc.constant(0), fc.integer({ min: 0xd800, max: 0xdfff })))
  .map(([before, after, unit]) => before + String.fromCharCode(unit) + after);

for (const engine of engines) {
  describe(`properties over HTTP, on ${engine.name}`, () => {
    test('any sequence of commands → each owner behaves like a separate map', async (t) => {
      const nextOwner = createOwners(await startService(t, await engine.freshUrl(t)));
      await fc.assert(
        fc.asyncProperty(anyCommands(), async (commands) => {
          const real = await Promise.all(Array.from({ length: OWNERS }, nextOwner));
          const model: Model = real.map(() => new Map());
          await fc.asyncModelRun(() => ({ model, real }), commands);
          for (const [owner, client] of real.entries())
            assert.deepEqual((await client.list()).body, listOf(model, owner));
        }),
        { numRuns: 25 },
      );
    });

    test('any int64 → a distinct id: created, listed in order, deleted by path', async (t) => {
      const nextOwner = createOwners(await startService(t, await engine.freshUrl(t)));
      await fc.assert(
        fc.asyncProperty(anyInt64, async (id) => {
          const client = await nextOwner();
          const ids = [id - 1n, id, id + 1n].filter((one) => one >= INT64_MIN && one <= INT64_MAX);
          const plant = (one: bigint): Plant => ({ name: `plant ${one}` });
          for (const one of [...ids].reverse()) {
            assert.equal((await client.createPlant(one, plant(one))).status, 200);
          }
          assert.deepEqual((await client.list()).body, ids.map(plant));
          assert.equal((await client.delete(id)).status, 204);
          assert.deepEqual((await client.list()).body, ids.filter((one) => one !== id).map(plant));
        }),
        { numRuns: 60 },
      );
    });

    test('integer beyond int64, in a body or path → 40000', async (t) => {
      const client = await createOwners(await startService(t, await engine.freshUrl(t)))();
      await fc.assert(
        fc.asyncProperty(beyondInt64, async (id) => {
          assertError(await client.createPlant(id, { name: 'too far' }), 40000, /`id`/);
          assertError(await client.delete(id), 40000, /`id`/);
        }),
        { numRuns: 60 },
      );
      assert.deepEqual((await client.list()).body, []);
    });

    test('JSON number → an id if and only if its value is an int64, in any notation', async (t) => {
      const client = await createOwners(await startService(t, await engine.freshUrl(t)))();
      await fc.assert(
        fc.asyncProperty(fc.oneof(anyNumber, movedInt64), async (parts) => {
          const id = integerOf(parts);
          const answer = await client.create(`{"name":"x","id":${textOf(parts)}}`);
          if (id === undefined || id < INT64_MIN || id > INT64_MAX) {
            return assertError(answer, 40000, /`id`/);
          }
          assert.equal(answer.status, 200);
          assert.equal((await client.delete(id)).status, 204);
        }),
        { numRuns: 300 },
      );
    });

    test('any valid name and tag, escaped or not → returned unchanged', async (t) => {
      const nextOwner = createOwners(await startService(t, await engine.freshUrl(t)));
      await fc.assert(
        fc.asyncProperty(legalText, legalText, async (name, tag) => {
          const client = await nextOwner();
          const plant = { name, tag };
          const bodies = [
            JSON.stringify({ id: 1, name, tag }),
            `{"id":2,"name":${escapeEverything(name)},"tag":${escapeEverything(tag)}}`,
          ];
          for (const body of bodies) assert.deepEqual((await client.create(body)).body, plant);
          assert.deepEqual((await client.list()).body, [plant, plant]);
        }),
        { numRuns: 60 },
      );
    });

    test('name or tag with U+0000 or a lone surrogate → 40000 that names the field', async (t) => {
      const client = await createOwners(await startService(t, await engine.freshUrl(t)))();
      await fc.assert(
        fc.asyncProperty(illegalText, async (text) => {
          for (const json of [JSON.stringify(text), escapeEverything(text)]) {
            assertError(await client.create(`{"id":1,"name":${json}}`), 40000, /`name`/);
            assertError(await client.create(`{"id":1,"name":"x","tag":${json}}`), 40000, /`tag`/);
          }
        }),
        { numRuns: 60 },
      );
      assert.deepEqual((await client.list()).body, []);
    });

    test('pages of any limit → together the complete list; all full except the last', async (t) => {
      const nextOwner = createOwners(await startService(t, await engine.freshUrl(t)));
      const ids = fc.uniqueArray(anyInt64, { maxLength: 40 });
      await fc.assert(
        fc.asyncProperty(ids, fc.integer({ min: 1, max: 45 }), async (some, limit) => {
          const client = await nextOwner();
          await Promise.all(some.map((id) => client.createPlant(id, { name: `${id}` })));
          const pages = await client.pages(limit);
          const sorted = some.map((id) => [id, { name: `${id}` }] as const).sort(byId);
          assert.deepEqual(
            pages.flat(),
            sorted.map(([, plant]) => plant),
          );
          assert.equal(pages.length, Math.max(1, Math.ceil(some.length / limit)));
          for (const page of pages.slice(0, -1)) assert.equal(page.length, limit);
        }),
        { numRuns: 50 },
      );
    });
  });
}
