import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Client,
  createClient,
  type NewPlant,
  type Plant,
  PlantStoreError,
} from '../../client/src/client.ts';
import { isIdempotencyKey, isOptionalField, plantFields } from '../../src/plant.ts';
import { type Scenario, scenarioGroups } from '../support/data/api-scenarios.ts';
import { freshFolder } from '../support/engines.ts';
import { FULL_PLANT } from '../support/plants.ts';
import { exchangeAll, plant, secretOf } from '../support/scenario-setup.ts';
import { startService } from '../support/service.ts';

/** A row's request as a call of the client; resolves to the JSON of its result, if it has one. */
type Call = (client: Client) => Promise<string | undefined>;

/** By method of the client: the call of a row. Undefined if the method cannot send the row. */
const CALLS: Readonly<Record<keyof Client, (row: Scenario, path: string) => Call | undefined>> = {
  createPlant: creationOf,
  listPlants: (row, path) =>
    row.method === 'GET' && path === '/plants' && isBare(row)
      ? async (client) => jsonOf(client.listPlants())
      : undefined,
  deletePlant: (row, path) => {
    const id = row.method === 'DELETE' ? /^\/plants\/(0|-?[1-9][0-9]*)$/.exec(path)?.[1] : undefined;
    if (id === undefined || BigInt(id) !== BigInt.asIntN(64, BigInt(id)) || !isBare(row)) return undefined;
    return async (client) => void (await client.deletePlant(BigInt(id)));
  },
};

const rows = scenarioGroups.flatMap((group) => group.rows);
const calls = rows.flatMap((row, index) =>
  callsOf(row).map(([name, call]) => ({ row, name, call, owner: `row-${index}` })),
);

// On one engine: test/http/api.test.ts compares the responses of both with the same table.
test('the rows of the API table that the client can send hold through it', async (t) => {
  const services = {
    none: await startService(t, `sqlite:${await freshFolder()}/plants.db`),
    '/v1': await startService(t, `sqlite:${await freshFolder()}/plants.db`, { basePath: '/v1' }),
  };
  for (const { row, call, owner } of calls) {
    await t.test(row.title, async () => {
      const service = services[row.basePath ?? 'none'];
      await plant(service, owner, row);
      await exchangeAll(service, owner, row.before ?? []);
      const token = await secretOf(service, owner, row.token ?? 'full');
      await check(row, call(createClient({ url: service.url, token, retries: 0 })));
      await exchangeAll(service, owner, row.after ?? []);
    });
  }
  await Promise.all([services.none.close(), services['/v1'].close()]);
});

test('the client can send many rows of the table, by each of its methods', () => {
  for (const method of Object.keys(CALLS)) {
    const count = calls.filter(({ name }) => name === method).length;
    assert.ok(count >= 10, `${method}: ${count}`);
  }
});

async function check(
  { answer, status, error, names = '' }: Scenario,
  called: Promise<string | undefined>,
): Promise<void> {
  if (error === undefined) {
    const given = await called;
    if (typeof answer === 'string') assert.equal(given ?? '', answer);
    return;
  }
  await assert.rejects(called, (failure: unknown) => {
    assert.ok(failure instanceof PlantStoreError);
    assert.deepEqual({ code: failure.code, status: failure.status }, { code: error, status });
    assert.ok(failure.message.includes(names), failure.message);
    assert.match(failure.requestId ?? '', /./);
    return true;
  });
}

/** The calls that send a row, each with the name of its method. */
function callsOf(row: Scenario): readonly (readonly [string, Call])[] {
  const { basePath = '' } = row;
  if (!row.path.startsWith(basePath)) return [];
  const path = row.path.slice(basePath.length);
  if (row.raw !== undefined || row.authorization !== undefined || row.interim !== undefined) return [];
  return Object.entries(CALLS).flatMap(([name, callOf]) => {
    const call = callOf(row, path);
    return call === undefined ? [] : [[name, call] as const];
  });
}

/** True for a request without headers and body. */
function isBare({ headers = [], body }: Scenario): boolean {
  return headers.length === 0 && body === undefined;
}

function creationOf({ method, headers = [], body }: Scenario, path: string): Call | undefined {
  if (method !== 'POST' || path !== '/plants') return undefined;
  const plant = typeof body === 'string' ? newPlantOf(body) : undefined;
  const keys = headers.filter(([name]) => name === 'Idempotency-Key').map(([, value]) => value);
  const others = headers.filter(
    ([name, value]) => name !== 'Idempotency-Key' && `${name}: ${value}` !== 'Content-Type: application/json',
  );
  if (plant === undefined || keys.length > 1 || others.length > 0 || headers.length === 0) return undefined;
  if (!keys.every(isIdempotencyKey)) return undefined;
  const [idempotencyKey] = keys;
  const options = idempotencyKey === undefined ? {} : { idempotencyKey };
  return async (client) => JSON.stringify((await client.createPlant(plant, options)).plant);
}

/** The plant of a request body in the client's form. Undefined for a body that the client cannot send. */
function newPlantOf(body: string): NewPlant | undefined {
  const [, digits = ''] = /^\{"id":(0|-?[1-9][0-9]{0,18}),/.exec(body) ?? [];
  if (digits === '' || BigInt(digits) !== BigInt.asIntN(64, BigInt(digits))) return undefined;
  const rest = asObject(`{${body.slice(body.indexOf(',') + 1)}`);
  return rest !== undefined && isPlant(rest) ? { id: BigInt(digits), ...rest } : undefined;
}

/** True for an object with the fields of a plant, and no others, of the types in FULL_PLANT. */
function isPlant(rest: object): rest is Plant {
  const fields = new Set<string>(plantFields);
  if (Object.keys(rest).some((field) => !fields.has(field))) return false;
  return plantFields.every((field) => {
    const value: unknown = Reflect.get(rest, field);
    return value === undefined ? isOptionalField(field) : typeof value === typeof FULL_PLANT[field];
  });
}

function asObject(text: string): object | undefined {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function jsonOf(plants: AsyncIterable<unknown>): Promise<string> {
  return JSON.stringify(await Array.fromAsync(plants));
}
