import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { type TestContext, test } from 'node:test';
import fc from 'fast-check';
import { recordWorkload } from '../../long/instances.ts';
import { freshFolder } from '../../support/engines.ts';
import {
  describeViolation,
  type Effect,
  findViolation,
  type Operation,
} from '../../support/linearizability.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { startService } from '../../support/service.ts';
import { type Addressed, type Answer, Client, type Question } from '../../support/service-instances.ts';

const created = (name: string): Effect => ({ kind: 'created', name });
const listed = (name?: string): Effect => ({ kind: 'listed', name });
const idTaken: Effect = { kind: 'idTaken' };
const deleted: Effect = { kind: 'deleted' };
const absent: Effect = { kind: 'absent' };
const unknownCreation = (name: string): Effect => ({ kind: 'unknownCreation', name });
const unknownDeletion: Effect = { kind: 'unknownDeletion' };

/** Operations on one plant, with the times of request and response and the outcome. */
function history(...operations: readonly (readonly [number, number, Effect])[]): Operation[] {
  return operations.map(([sentAt, answeredAt, effect]) => ({ key: '1', sentAt, answeredAt, effect }));
}

const NEVER = Number.POSITIVE_INFINITY;

const good: Readonly<Record<string, Operation[]>> = {
  'nothing at all': [],
  'one life, one operation after the other': history(
    [0, 1, absent],
    [2, 3, created('a')],
    [4, 5, idTaken],
    [6, 7, listed('a')],
    [8, 9, deleted],
    [10, 11, listed()],
  ),
  'two creations at once, of which one wins': history(
    [0, 5, created('a')],
    [1, 4, idTaken],
    [6, 7, listed('a')],
  ),
  'a list that shows a creation before it is answered': history([0, 9, created('a')], [1, 2, listed('a')]),
  'a list without a concurrent creation': history([0, 9, created('a')], [1, 2, listed()]),
  'a deletion and a creation at once, answered in the other order': history(
    [0, 1, created('a')],
    [2, 9, deleted],
    [3, 4, created('b')],
    [10, 11, listed('b')],
  ),
  'operations that touch in time, in either order': history([0, 1, created('a')], [1, 2, listed()]),
  'concurrent lists that show three values one after another': history(
    [0, 99, created('a')],
    [0, 99, created('b')],
    [0, 99, created('c')],
    [0, 99, deleted],
    [0, 99, deleted],
    [1, 2, listed('b')],
    [3, 4, listed('a')],
    [5, 6, listed('c')],
  ),
  'an unknown creation that never happened': history(
    [0, NEVER, unknownCreation('a')],
    [5, 6, listed()],
    [7, 8, created('b')],
  ),
  'an unknown creation that happened late': history(
    [0, NEVER, unknownCreation('a')],
    [5, 6, listed()],
    [7, 8, listed('a')],
  ),
  'an unknown deletion that happened': history(
    [0, 1, created('a')],
    [2, NEVER, unknownDeletion],
    [5, 6, listed('a')],
    [7, 8, absent],
  ),
  'many unknown writes, of which one is needed': history(
    ...Array.from({ length: 40 }, (_, index) => [index, NEVER, unknownDeletion] as const),
    [50, 51, created('a')],
    [52, 53, created('b')],
  ),
};

const bad: Readonly<Record<string, Operation[]>> = {
  'an acknowledged creation that a later list misses': history([0, 1, created('a')], [2, 3, listed()]),
  'an acknowledged deletion that a later list does not know of': history(
    [0, 1, created('a')],
    [2, 3, deleted],
    [4, 5, listed('a')],
  ),
  'the same id created twice': history([0, 1, created('a')], [2, 3, created('b')]),
  'two creations at once that both win': history([0, 5, created('a')], [1, 4, created('b')]),
  'one plant deleted twice': history([0, 1, created('a')], [2, 9, deleted], [3, 8, deleted]),
  'an id taken by nothing': history([0, 1, idTaken]),
  'a plant that was there and is absent to a deletion': history([0, 1, created('a')], [2, 3, absent]),
  'a list that shows the life before this one': history(
    [0, 1, created('a')],
    [2, 3, deleted],
    [4, 5, created('b')],
    [6, 7, listed('a')],
  ),
  'two lists, one after the other, that see a creation and then do not': history(
    [0, 9, created('a')],
    [1, 2, listed('a')],
    [3, 4, listed()],
  ),
  'lists that would need more deletions than there are': history(
    [0, 99, created('a')],
    [0, 99, created('b')],
    [0, 99, deleted],
    [1, 2, listed('a')],
    [3, 4, listed('b')],
    [5, 6, listed('a')],
  ),
  'an unknown creation that shows before it was sent': history(
    [0, 1, listed('a')],
    [2, NEVER, unknownCreation('a')],
  ),
  'an unknown creation that happens twice': history(
    [0, NEVER, unknownCreation('a')],
    [1, 2, listed('a')],
    [3, 4, deleted],
    [5, 6, listed('a')],
  ),
};

for (const [name, operations] of Object.entries(good)) {
  test(`linearizable: ${name}`, () => {
    assert.equal(findViolation(operations), undefined);
  });
}

for (const [name, operations] of Object.entries(bad)) {
  test(`not linearizable: ${name}`, () => {
    const violation = findViolation(operations);
    assert.ok(violation !== undefined);
    assert.ok(operations.includes(violation.operation));
    assert.match(describeViolation(violation), /^no order explains what happened to plant 1:\n/);
  });
}

test('several plants → each is judged separately, and the violating one is named', () => {
  const other = history([0, 1, created('a')], [2, 3, listed()]).map((one) => ({ ...one, key: '2' }));
  const operations = [...history([0, 1, created('a')]), ...other];
  assert.equal(findViolation(operations)?.key, '2');
  assert.equal(findViolation(operations.filter(({ key }) => key === '1')), undefined);
});

test('long history with high concurrency → judged quickly', () => {
  const rounds = Array.from({ length: 500 }, (_, round): (readonly [number, number, Effect])[] => {
    const from = round * 10;
    return [
      [from, from + 9, created(`${round} a`)],
      [from, from + 9, created(`${round} b`)],
      [from, from + 9, created(`${round} c`)],
      [from, from + 9, deleted],
      [from + 1, from + 9, deleted],
      [from + 2, from + 9, deleted],
      ...Array.from({ length: 10 }, () => [from, from + 9, idTaken] as const),
      ...Array.from({ length: 10 }, () => [from + 3, from + 9, absent] as const),
    ];
  });
  assert.equal(findViolation(history(...rounds.flat())), undefined);
});

/** Brute force: tries all orders. */
function isLinearizableByTrial(operations: readonly Operation[], state?: string): boolean {
  const known = operations.filter(({ answeredAt }) => answeredAt !== NEVER);
  if (known.length === 0) return true;
  const firstAnswer = Math.min(...known.map(({ answeredAt }) => answeredAt));
  return operations.some((operation) => {
    if (operation.sentAt > firstAnswer || !isPossible(operation.effect, state)) return false;
    const rest = operations.filter((other) => other !== operation);
    return isLinearizableByTrial(rest, following(operation.effect, state));
  });
}

function isPossible(effect: Effect, state: string | undefined): boolean {
  if (effect.kind === 'listed') return effect.name === state;
  if (effect.kind === 'created' || effect.kind === 'absent') return state === undefined;
  return effect.kind.startsWith('unknown') || state !== undefined;
}

function following(effect: Effect, state: string | undefined): string | undefined {
  if (effect.kind === 'created') return effect.name;
  if (effect.kind === 'unknownCreation') return state ?? effect.name;
  return effect.kind === 'deleted' || effect.kind === 'unknownDeletion' ? undefined : state;
}

const anyOperation = fc
  .record({
    sentAt: fc.integer({ min: 0, max: 12 }),
    takes: fc.integer({ min: 1, max: 8 }),
    effect: fc.oneof(
      fc.constantFrom(deleted, absent, idTaken, listed(), unknownDeletion),
      fc.constantFrom('a', 'b').map(created),
      fc.constantFrom('a', 'b').map(listed),
      fc.constantFrom('a', 'b').map(unknownCreation),
    ),
  })
  .map(({ sentAt, takes, effect }): Operation => {
    const answeredAt = effect.kind.startsWith('unknown') ? NEVER : sentAt + takes;
    return { key: '1', sentAt, answeredAt, effect };
  });

test('all small histories → same verdict as brute force', () => {
  const verdicts = { good: 0, bad: 0 };
  fc.assert(
    fc.property(fc.array(anyOperation, { minLength: 2, maxLength: 7 }), (operations) => {
      const isGood = isLinearizableByTrial(operations);
      verdicts[isGood ? 'good' : 'bad'] += 1;
      assert.equal(findViolation(operations) === undefined, isGood);
    }),
    { numRuns: 3_000 },
  );
  assert.ok(verdicts.good > 100 && verdicts.bad > 100, JSON.stringify(verdicts));
});

/** Behaviour of a front: forwards a request, and returns its response or another one. */
type Manners = (pass: () => Promise<Answer>, method: string, path: string) => Promise<Answer>;

/** Starts a proxy in front of a service, with the given behaviour. It stops after the test. */
async function startFront(t: TestContext, service: Addressed, manners: Manners): Promise<Addressed> {
  const client = new Client();
  t.after(() => client.close());
  const url = await serve(t, async (request, response) => {
    const { url: path = '/', method } = request;
    if (method !== 'GET' && method !== 'POST' && method !== 'DELETE') throw new Error('unknown operation');
    const body = Buffer.concat(await request.toArray()).toString();
    const headers: Record<string, string> = { authorization: request.headers.authorization ?? '' };
    if (body !== '') headers['content-type'] = 'application/json';
    const question: Question = { method, path, headers, ...(body !== '' && { body }) };
    send(response, await manners(() => client.ask(service, question), method, path));
  });
  return { url };
}

function send(response: ServerResponse, { status, body }: Answer): void {
  response.writeHead(status).end(body);
}

const honest: Manners = (pass) => pass();

function cachingLists(ms: number): Manners {
  const cached = new Map<string, { answer: Answer; until: number }>();
  return async (pass, method, path) => {
    const known = cached.get(path);
    if (method === 'GET' && known !== undefined && performance.now() < known.until) return known.answer;
    const answer = await pass();
    if (method === 'GET') cached.set(path, { answer, until: performance.now() + ms });
    return answer;
  };
}

/** Drops one of twenty deletions. */
function droppingDeletions(): Manners {
  let deletions = 0;
  return async (pass, method) => {
    if (method === 'DELETE') deletions += 1;
    return method === 'DELETE' && deletions % 20 === 0 ? { status: 204, headers: {}, body: '' } : pass();
  };
}

for (const [name, manners, isLinearizable] of [
  ['an honest front', honest, true],
  ['a front that answers lists from a cache of 200 ms', cachingLists(200), false],
  ['a front that acknowledges deletions without forwarding them', droppingDeletions(), false],
] as const) {
  test(`${name} is ${isLinearizable ? 'linearizable' : 'detected as not linearizable'}`, async (t) => {
    const service = await startService(t, `sqlite:${await freshFolder()}/plants.db`);
    const fronts = [service, await startFront(t, service, manners)];
    const token = await service.token();
    const { operations, surprises } = await recordWorkload({
      fronts,
      token,
      clients: 8,
      hotPlants: 4,
      seconds: 0.7,
      atLeast: 1_000,
    });
    assert.deepEqual(surprises, []);
    assert.ok(operations.length > 100, `${operations.length} operations`);
    const violation = findViolation(operations);
    const found = violation === undefined ? 'nothing' : describeViolation(violation);
    assert.equal(violation === undefined, isLinearizable, found);
  });
}
