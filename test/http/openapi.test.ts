import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Check } from 'typebox/schema';
import { operations } from '../../src/http/app.ts';
import { createRequestIds } from '../../src/http/http-app.ts';
import { renderOpenApi } from '../../src/http/openapi.ts';
import { decodeCursor } from '../../src/http/plants/cursor.ts';
import { isIdempotencyKey, NewPlant } from '../../src/plant.ts';
import { Type } from '../../src/schema.ts';
import { compileCheck } from '../../src/validation.ts';
import { type Scenario, scenarioGroups } from '../support/data/api-scenarios.ts';
import { engines } from '../support/engines.ts';
import { startService } from '../support/service.ts';

const document: unknown = JSON.parse(renderOpenApi(operations, ''));

/** Matches a parameter in the `url` of an operation. */
const PARAMETER = /:(\w+)/g;

type OperationId = (typeof operations)[number]['operationId'];

for (const engine of engines) {
  for (const basePath of ['', '/v1']) {
    test(`/openapi.json, base path '${basePath}' → the document of the operations, on ${engine.name}`, async (t) => {
      const service = await startService(t, await engine.freshUrl(t), { basePath });
      const response = await fetch(`${service.url}/openapi.json`);
      assert.equal(response.status, 200);
      assert.equal(response.headers.get('content-type'), 'application/json');
      assert.equal(await response.text(), renderOpenApi(operations, basePath));
      await service.close();
    });
  }
}

test('the document has exactly the three operations of the specification', () => {
  const found = Object.entries(membersOf(document, 'paths')).flatMap(([path, methods]) =>
    Object.entries(membersOf(methods)).map(([method, operation]) => [
      at(operation, 'operationId'),
      method,
      path,
    ]),
  );
  assert.deepEqual(
    found.sort(),
    [
      ['createPlant', 'post', '/plants'],
      ['deletePlant', 'delete', '/plants/{id}'],
      ['listPlants', 'get', '/plants'],
    ].sort(),
  );
});

test('response header without an example → described without one', () => {
  const [create = assert.fail()] = operations.filter(({ operationId }) => operationId === 'createPlant');
  const headers = { 'X-Bare': Type.String({ description: 'No example.' }) };
  const changed = JSON.parse(renderOpenApi([{ ...create, success: { ...create.success, headers } }], ''));
  const described = changed.paths['/plants'].post.responses['200'].headers;
  assert.deepEqual(described['X-Bare'], { description: 'No example.', schema: { type: 'string' } });
  assert.equal(typeof described['X-Request-Id'].example, 'string');
});

test('the document has the API version 1.0.0 and the base path as its server', () => {
  assert.match(String(at(document, 'openapi')), /^3\.1\.[0-9]+$/);
  assert.equal(at(document, 'info', 'version'), '1.0.0');
  assert.deepEqual(at(document, 'servers'), [{ url: '/' }]);
  const created = ['paths', '/plants', 'post', 'responses', '200', 'headers'];
  assert.equal(at(document, ...created, 'Idempotent-Replayed', 'schema', 'type'), 'string');
  assert.deepEqual(at(JSON.parse(renderOpenApi(operations, '/v1')), 'servers'), [{ url: '/v1' }]);
});

test('Plant, NewPlant and Error have exactly the fields, types, formats and requirements of the specification', () => {
  assert.deepEqual(outlineOf('Plant'), {
    type: 'object',
    required: ['name'],
    fields: { name: 'string', tag: 'string' },
  });
  assert.deepEqual(outlineOf('NewPlant'), {
    type: 'object',
    required: ['id', 'name'],
    fields: { name: 'string', tag: 'string', id: 'integer int64' },
  });
  assert.deepEqual(outlineOf('Error'), {
    type: 'object',
    required: ['error', 'message'],
    fields: { error: 'integer int32', message: 'string' },
  });
  assert.deepEqual(Object.keys(membersOf(document, 'components', 'schemas')).sort(), [
    'Error',
    'NewPlant',
    'Plant',
  ]);
});

test('request and response bodies have the schemas of the specification', () => {
  const json = ['content', 'application/json', 'schema'];
  const created = operationOf('createPlant');
  assert.equal(at(created, 'requestBody', 'required'), true);
  assert.equal(at(created, 'requestBody', ...json, '$ref'), '#/components/schemas/NewPlant');
  assert.equal(at(created, 'responses', '200', ...json, '$ref'), '#/components/schemas/Plant');
  const listed = operationOf('listPlants');
  assert.equal(at(listed, 'responses', '200', ...json, 'type'), 'array');
  assert.equal(at(listed, 'responses', '200', ...json, 'items', '$ref'), '#/components/schemas/Plant');
  assert.equal(at(listed, 'requestBody'), undefined);
  const deleted = operationOf('deletePlant');
  assert.equal(at(deleted, 'responses', '204', 'content'), undefined);
  assert.equal(at(deleted, 'requestBody'), undefined);
});

test('the operations have exactly these parameters', () => {
  const expected = {
    createPlant: { 'Idempotency-Key': 'header optional string' },
    listPlants: { limit: 'query optional integer int32', cursor: 'query optional string' },
    deletePlant: { id: 'path required integer int64' },
  } satisfies Record<OperationId, object>;
  for (const { operationId } of operations)
    assert.deepEqual(parametersOf(operationId), expected[operationId], operationId);
});

test('an optional parameter has no example, since tools would send it', () => {
  for (const { operationId } of operations) {
    for (const parameter of Object.values(membersOf(operationOf(operationId), 'parameters'))) {
      const isRequired = at(parameter, 'required') === true;
      assert.deepEqual([...examplesIn(parameter)].length, isRequired ? 1 : 0, String(at(parameter, 'name')));
    }
  }
});

test('a header of some responses only has no example, since mock servers would send it with each', () => {
  for (const { operationId, success } of operations) {
    const headers = membersOf(operationOf(operationId), 'responses', String(success.status), 'headers');
    const withExample = Object.keys(headers).filter((name) => [...examplesIn(headers[name])].length > 0);
    assert.deepEqual(withExample, ['X-Request-Id']);
  }
});

test('the samples of `Link` and `X-Request-Id` have the form of those that the service sends', () => {
  const headers = membersOf(operationOf('listPlants'), 'responses', '200', 'headers');
  const [, cursor = ''] = /cursor=([^>]+)>/.exec(String(at(headers, 'Link', 'description'))) ?? [];
  assert.equal(decodeCursor(cursor), 20n);
  for (const id of [at(headers, 'X-Request-Id', 'example'), createRequestIds()()])
    assert.match(String(id), /^[0-9a-f]{12}-[0-9a-z]+$/);
});

test('createPlant links to deletePlant by the id of the request', () => {
  const { deletePlant: link } = membersOf(operationOf('createPlant'), 'responses', '200', 'links');
  assert.equal(at(link, 'operationId'), 'deletePlant');
  assert.deepEqual(at(link, 'parameters'), { id: '$request.body#/id' });
});

test('each operation documents the common errors by status, and the others as default', () => {
  const common = ['400', '401', '403', '429', '503', 'default'];
  const expected = {
    createPlant: ['200', ...common],
    listPlants: ['200', ...common],
    deletePlant: ['204', '400', '401', '403', '404', '429', '503', 'default'],
  } satisfies Record<OperationId, string[]>;
  for (const { operationId } of operations) {
    const statuses = Object.keys(membersOf(operationOf(operationId), 'responses'));
    assert.deepEqual(statuses, expected[operationId], operationId);
  }
});

test('descriptions of responses are short', () => {
  for (const { operationId } of operations) {
    for (const response of Object.values(membersOf(operationOf(operationId), 'responses'))) {
      assert.ok(String(at(response, 'description')).length < 90, String(at(response, 'description')));
    }
  }
});

test('every operation requires a bearer token with its scope', () => {
  assert.equal(at(document, 'components', 'securitySchemes', 'bearer', 'type'), 'http');
  assert.equal(at(document, 'components', 'securitySchemes', 'bearer', 'scheme'), 'bearer');
  for (const { operationId, scope } of operations) {
    assert.deepEqual(at(operationOf(operationId), 'security'), [{ bearer: [scope] }]);
    const challenge = (status: string) =>
      at(operationOf(operationId), 'responses', status, 'headers', 'WWW-Authenticate', 'example');
    assert.equal(challenge('401'), 'Bearer realm="plant-store"');
    assert.equal(
      challenge('403'),
      `Bearer realm="plant-store", error="insufficient_scope", scope="${scope}"`,
    );
  }
});

test('every response except success has the schema Error', () => {
  for (const { operationId, success } of operations) {
    for (const [status, response] of Object.entries(membersOf(operationOf(operationId), 'responses'))) {
      if (status === String(success.status)) continue;
      assert.ok(Number(status) >= 400 || status === 'default', `${operationId} ${status}`);
      assert.deepEqual(at(response, 'content', 'application/json', 'schema'), {
        $ref: '#/components/schemas/Error',
      });
    }
  }
});

test('every example is valid under its schema', () => {
  const examples = [...examplesIn(document)];
  for (const { schema, example } of examples) {
    assert.ok(
      matches(schema, example),
      `${JSON.stringify(example)} does not match ${JSON.stringify(schema)}`,
    );
  }
  const texts = examples.map(({ example }) => JSON.stringify(example));
  assert.ok(
    texts.some((text) => text.startsWith('[{"name":')),
    'a list has an example',
  );
  assert.ok(
    texts.some((text) => text.startsWith('{"id":')),
    'a new plant has an example',
  );
  for (const { operationId, success } of operations) {
    for (const [status, response] of Object.entries(membersOf(operationOf(operationId), 'responses'))) {
      const inside = [...examplesIn(at(response, 'content') ?? {})];
      assert.equal(inside.length > 0, status !== '204', `${operationId} ${success.status}`);
    }
  }
});

test('the schema NewPlant rejects what the service rejects', () => {
  const newPlant = at(document, 'components', 'schemas', 'NewPlant');
  assert.ok(matches(newPlant, { id: 7, name: '' }));
  for (const wrong of [
    { id: 7 },
    { name: 'Fern' },
    { id: '7', name: 'Fern' },
    { id: 7, name: null },
    [],
    7,
  ]) {
    assert.ok(!matches(newPlant, wrong), JSON.stringify(wrong));
  }
  assert.ok(!matches(newPlant, { id: 7, name: 'Fern', tag: null }));
});

test('the patterns accept exactly what the service accepts', () => {
  const nameSchema = at(document, 'components', 'schemas', 'NewPlant', 'properties', 'name');
  const keySchema = at(Object.values(membersOf(operationOf('createPlant'), 'parameters'))[0], 'schema');
  const texts = [
    '',
    '\0',
    'a\0b',
    'a\nb\n',
    '\u{1F331}',
    '\x7f',
    ' ',
    '!',
    '~',
    'é',
    'k'.repeat(255),
    'k'.repeat(256),
  ];
  const checkPlant = compileCheck(NewPlant);
  for (const text of texts) {
    const isName = 'value' in checkPlant({ id: 7n, name: text });
    assert.equal(matches(nameSchema, text), isName, `name ${JSON.stringify(text)}`);
    assert.equal(matches(keySchema, text), isIdempotencyKey(text), `key ${JSON.stringify(text)}`);
  }
});

test('every status, error and header in the API table is documented for its operation', () => {
  const checked: OperationId[] = [];
  for (const row of scenarioGroups.flatMap((group) => group.rows)) {
    const operationId = operationIdOf(row);
    if (operationId === undefined) continue;
    const documentedResponses = membersOf(operationOf(operationId), 'responses');
    const response = documentedResponses[row.status] ?? documentedResponses.default;
    assert.ok(row.status >= 400 || response !== documentedResponses.default, `${operationId} ${row.status}`);
    if (row.error !== undefined) {
      const example = at(response, 'content', 'application/json', 'examples', String(row.error));
      assert.equal(at(example, 'value', 'error'), row.error, `${operationId} ${row.error}: ${row.title}`);
    }
    const documented = Object.keys(membersOf(response, 'headers')).map((name) => name.toLowerCase());
    assert.ok(documented.includes('x-request-id'));
    for (const header of headersOf(row)) {
      assert.ok(documented.includes(header), `${operationId} ${row.status} ${header}: ${row.title}`);
    }
    checked.push(operationId);
  }
  assert.ok(checked.length > 140, `${checked.length} rows are about an operation`);
  for (const { operationId } of operations) assert.ok(checked.includes(operationId), operationId);
});

/** Returns the member at a path in a value; undefined if there is none. */
function at(value: unknown, ...path: readonly string[]): unknown {
  let found = value;
  for (const name of path) {
    if (typeof found !== 'object' || found === null) return undefined;
    found = Reflect.get(found, name);
  }
  return found;
}

function membersOf(value: unknown, ...path: readonly string[]): Record<string, unknown> {
  const found = at(value, ...path);
  assert.ok(typeof found === 'object' && found !== null, `there is nothing at ${path.join(' ')}`);
  return Object.fromEntries(Object.entries(found));
}

function operationOf(operationId: OperationId): unknown {
  const { url, method } = operations.find((one) => one.operationId === operationId) ?? assert.fail();
  return at(document, 'paths', url.replaceAll(PARAMETER, '{$1}'), method.toLowerCase());
}

function outlineOf(name: string) {
  const schema = membersOf(document, 'components', 'schemas', name);
  const fields = Object.entries(membersOf(schema.properties)).map(([field, one]) => [field, typeOf(one)]);
  const { required } = schema;
  assert.ok(Array.isArray(required));
  return { type: schema.type, required: required.toSorted(), fields: Object.fromEntries(fields) };
}

function typeOf(schema: unknown): string {
  return [at(schema, 'type'), at(schema, 'format')].filter((part) => part !== undefined).join(' ');
}

function parametersOf(operationId: OperationId): Record<string, unknown> {
  const entries = Object.values(membersOf(operationOf(operationId), 'parameters')).map((one) => [
    at(one, 'name'),
    `${at(one, 'in')} ${at(one, 'required') === true ? 'required' : 'optional'} ${typeOf(at(one, 'schema'))}`,
  ]);
  return Object.fromEntries(entries);
}

/** Yields all examples at or below a value, each with its schema. */
function* examplesIn(value: unknown): Generator<{ schema: unknown; example: unknown }> {
  if (typeof value !== 'object' || value === null) return;
  const { schema, example, examples }: Record<string, unknown> = { ...value };
  if (Array.isArray(examples)) {
    for (const one of examples) yield { schema: value, example: one };
  } else if (schema !== undefined) {
    if (example !== undefined) yield { schema, example };
    for (const one of Object.values(membersOf(examples ?? {}))) yield { schema, example: at(one, 'value') };
  }
  for (const [name, member] of Object.entries(value)) {
    if (name !== 'example' && name !== 'examples') yield* examplesIn(member);
  }
}

function matches(schema: unknown, value: unknown): boolean {
  const whole = withoutReferences(schema);
  assert.ok(typeof whole === 'object' && whole !== null);
  return Check(whole, value);
}

/** Resolves all references in a schema. */
function withoutReferences(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(withoutReferences);
  const reference = at(value, '$ref');
  if (typeof reference === 'string') {
    const target = at(document, ...reference.replace('#/', '').split('/'));
    assert.ok(target !== undefined, `${reference} points nowhere`);
    return withoutReferences(target);
  }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withoutReferences(one)]));
}

/** Returns the operation that a row tests; undefined if none. */
function operationIdOf({ method, path, basePath, error }: Scenario): OperationId | undefined {
  if (error === 40401 || error === 40500) return undefined;
  const route =
    path
      .replace(/^\{next\}/, '/plants')
      .slice(basePath?.length ?? 0)
      .split('?', 1)[0] ?? '';
  return operations.find(
    (one) =>
      one.method === (method === 'HEAD' ? 'GET' : method) &&
      new RegExp(`^${one.url.replaceAll(PARAMETER, '[^/]+')}$`).test(route),
  )?.operationId;
}

/** Returns the names of the headers that a row expects, except `content-*`. */
function headersOf({ answers = {} }: Scenario): string[] {
  return Object.entries(answers)
    .filter(([name, value]) => value !== null && !name.startsWith('content-'))
    .map(([name]) => name);
}
