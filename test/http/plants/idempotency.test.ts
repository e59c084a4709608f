import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { KEY_LIFETIME_MS } from '../../../src/store/store.ts';
import { ageKeys, engines, type TestEngine } from '../../support/engines.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { bearer, shareServices, startService, type TestService } from '../../support/service.ts';

const fern = { id: 7, name: 'Fern', tag: 'Polypodium' };

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly replayed: string | null;
}

const created: Answer = { status: 200, body: '{"name":"Fern","tag":"Polypodium"}', replayed: null };
const createdReplayed: Answer = { ...created, replayed: 'true' };

/** Pairs of different plants. */
const otherPlants: readonly (readonly [what: string, first: unknown, second: unknown])[] = [
  ['another name', fern, { ...fern, name: 'fern' }],
  ['another tag', fern, { ...fern, tag: 'Quercus' }],
  ['another id', fern, { ...fern, id: 8 }],
  ['no tag instead of one', fern, { id: 7, name: 'Fern' }],
  ['an empty tag instead of none', { id: 7, name: 'Fern' }, { id: 7, name: 'Fern', tag: '' }],
  ['no tag instead of an empty one', { id: 7, name: 'Fern', tag: '' }, { id: 7, name: 'Fern' }],
  ['name and tag exchanged', { id: 7, name: 'a', tag: 'b' }, { id: 7, name: 'b', tag: 'a' }],
  ['name and tag cut elsewhere', { id: 7, name: 'ab', tag: 'c' }, { id: 7, name: 'a', tag: 'bc' }],
  ['id and name cut elsewhere', { id: 7, name: '1' }, { id: 71, name: '' }],
];

const share = shareServices();

for (const engine of engines) {
  test(`repeated creation → the first response again, each time, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    for (let round = 0; round < 3; round += 1) {
      assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    }
    assert.equal(await list(service, token), `[${created.body}]`);
  });

  test(`replay after the plant was deleted → creates nothing, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    await remove(service, token, 7);
    assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    assert.equal(await list(service, token), '[]');
    assert.deepEqual(await post(service, token, fern, 'another-key'), created);
  });

  test(`failed creation → key not used; retry creates after the id is free, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    await post(service, token, { id: 7, name: 'Oak' });
    for (let round = 0; round < 2; round += 1) {
      const taken = await post(service, token, fern, 'key');
      assert.equal(taken.status, 400);
      assert.equal(codeOf(taken), 40002);
      assert.equal(taken.replayed, null);
    }
    await remove(service, token, 7);
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    assert.equal(await list(service, token), `[${created.body}]`);
  });

  test(`same key, other plant → 40003, nothing changes, on ${engine.name}`, async (t) => {
    const { service } = await share(engine);
    for (const [what, first, second] of otherPlants) {
      await t.test(what, async () => {
        const token = await service.token(what.replaceAll(' ', '-'));
        const answer = await post(service, token, first, 'key');
        assert.equal(answer.status, 200);
        const before = await list(service, token);
        const rejected = await post(service, token, second, 'key');
        assert.equal(rejected.status, 400);
        assert.equal(codeOf(rejected), 40003);
        assert.equal(rejected.replayed, null);
        assert.equal(await list(service, token), before);
        assert.deepEqual(await post(service, token, first, 'key'), { ...answer, replayed: 'true' });
      });
    }
  });

  test(`same key, two owners → independent, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    const other = await service.token('bob');
    const oak: Answer = { status: 200, body: '{"name":"Oak"}', replayed: null };
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    assert.deepEqual(await post(service, other, { id: 7, name: 'Oak' }, 'key'), oak);
    assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    assert.deepEqual(await post(service, other, { id: 7, name: 'Oak' }, 'key'), { ...oak, replayed: 'true' });
  });

  test(`two tokens of one owner → shared keys, on ${engine.name}`, async () => {
    const { service, owner, token } = await share(engine);
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    assert.deepEqual(await post(service, await service.token(owner), fern, 'key'), createdReplayed);
  });

  test(`key after its lifetime from its first use → free for any plant, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    const { databaseUrl } = service.config;
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    await ageKeys(databaseUrl, KEY_LIFETIME_MS / 2);
    assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    await ageKeys(databaseUrl, KEY_LIFETIME_MS / 2 - PATIENCE_MS);
    assert.deepEqual(await post(service, token, fern, 'key'), createdReplayed);
    await ageKeys(databaseUrl, PATIENCE_MS);
    const oak: Answer = { status: 200, body: '{"name":"Oak"}', replayed: null };
    assert.deepEqual(await post(service, token, { id: 8, name: 'Oak' }, 'key'), oak);
    assert.equal(codeOf(await post(service, token, fern, 'key')), 40003);
    await ageKeys(databaseUrl, KEY_LIFETIME_MS - PATIENCE_MS);
    assert.deepEqual(await post(service, token, { id: 8, name: 'Oak' }, 'key'), { ...oak, replayed: 'true' });
    await service.close();
  });

  test(`same key and plant after the lifetime of the key → 40002, on ${engine.name}`, async (t) => {
    const { service, token } = await start(t, engine);
    assert.deepEqual(await post(service, token, fern, 'key'), created);
    await ageKeys(service.config.databaseUrl, KEY_LIFETIME_MS);
    const taken = await post(service, token, fern, 'key');
    assert.equal(codeOf(taken), 40002);
    assert.equal(taken.replayed, null);
    await service.close();
  });

  test(`32 concurrent requests with one key → one creates, all get the same response, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    const answers = await Promise.all(Array.from({ length: 32 }, () => post(service, token, fern, 'key')));
    checkOneCreated(answers);
    assert.equal(await list(service, token), `[${created.body}]`);
  });

  test(`32 concurrent requests with one key on two instances → one creates, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const instances = [await startService(t, url), await startService(t, url)] as const;
    const token = await instances[0].token();
    const answers = await Promise.all(
      Array.from({ length: 16 }).flatMap(() =>
        instances.map((instance) => post(instance, token, fern, 'key')),
      ),
    );
    checkOneCreated(answers);
    for (const instance of instances) assert.equal(await list(instance, token), `[${created.body}]`);
    await Promise.all(instances.map((instance) => instance.close()));
  });

  test(`32 concurrent plants with one key → one is created, the others get 40003, on ${engine.name}`, async () => {
    const { service, token } = await share(engine);
    const answers = await Promise.all(
      Array.from({ length: 32 }, (_, id) => post(service, token, { id, name: `plant ${id}` }, 'key')),
    );
    const winners = answers.filter(({ status }) => status === 200);
    assert.equal(winners.length, 1);
    assert.equal(await list(service, token), `[${winners[0]?.body}]`);
    const codes = answers.filter(({ status }) => status !== 200).map(codeOf);
    assert.deepEqual(new Set(codes), new Set([40003]));
  });

  test(`replay after a restart → the first response again, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const first = await startService(t, url);
    const token = await first.token();
    assert.deepEqual(await post(first, token, fern, 'key'), created);
    const taken = await post(first, token, { ...fern, name: 'Oak' }, 'key-of-a-failure');
    assert.equal(codeOf(taken), 40002);
    await first.close();
    const second = await startService(t, url);
    assert.deepEqual(await post(second, token, fern, 'key'), createdReplayed);
    assert.deepEqual(await post(second, token, { ...fern, name: 'Oak' }, 'key-of-a-failure'), taken);
    assert.equal(codeOf(await post(second, token, { ...fern, name: 'Oak' }, 'key')), 40003);
    assert.equal(await list(second, token), `[${created.body}]`);
    await second.close();
  });
}

function checkOneCreated(answers: readonly Answer[]): void {
  for (const answer of answers) assert.deepEqual({ ...answer, replayed: null }, created);
  assert.equal(answers.filter(({ replayed }) => replayed === null).length, 1);
}

async function start(t: TestContext, engine: TestEngine): Promise<{ service: TestService; token: string }> {
  const service = await startService(t, await engine.freshUrl(t));
  return { service, token: await service.token() };
}

async function post({ url }: TestService, token: string, plant: unknown, key?: string): Promise<Answer> {
  const response = await fetch(`${url}/plants`, {
    method: 'POST',
    headers: {
      ...bearer(token),
      'content-type': 'application/json',
      ...(key === undefined ? {} : { 'idempotency-key': key }),
    },
    body: JSON.stringify(plant),
  });
  return {
    status: response.status,
    body: await response.text(),
    replayed: response.headers.get('idempotent-replayed'),
  };
}

function codeOf({ body }: Answer): unknown {
  const error: unknown = JSON.parse(body);
  return typeof error === 'object' && error !== null && 'error' in error ? error.error : undefined;
}

async function list({ url }: TestService, token: string): Promise<string> {
  const response = await fetch(`${url}/plants`, { headers: bearer(token) });
  assert.equal(response.status, 200);
  return response.text();
}

async function remove({ url }: TestService, token: string, id: number): Promise<void> {
  const response = await fetch(`${url}/plants/${id}`, { method: 'DELETE', headers: bearer(token) });
  assert.equal(response.status, 204);
}
