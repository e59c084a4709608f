import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errorCodes } from '../../src/api-errors.ts';
import { headerOf, type RawAnswer, sendRaw, sendRequest } from '../support/clients/raw-http.ts';
import { type Scenario, scenarioGroups } from '../support/data/api-scenarios.ts';
import { engines } from '../support/engines.ts';
import { exchangeAll, plant, secretOf } from '../support/scenario-setup.ts';
import { bearer, startService, type TestService } from '../support/service.ts';

const rows = scenarioGroups.flatMap((group) => group.rows);

/** Errors that no single request can cause; other tests cover them. */
const NOT_BY_REQUEST = [40800, 42900, 50000, 50300, 50301, 50302];

for (const engine of engines) {
  test(`API table, on ${engine.name}`, async (t) => {
    const services = {
      none: await startService(t, await engine.freshUrl(t)),
      '/v1': await startService(t, await engine.freshUrl(t), { basePath: '/v1' }),
    };
    const answers = new Map<string, RawAnswer>();
    for (const group of scenarioGroups) {
      await t.test(group.section, async (t) => {
        for (const row of group.rows) {
          await t.test(row.title, async () => {
            const service = services[row.basePath ?? 'none'];
            const owner = `row-${rows.indexOf(row)}`;
            const answer = await ask(service, owner, row);
            answers.set(row.title, answer);
            checkAnswer(row, answer);
            await exchangeAll(service, owner, row.after ?? []);
          });
        }
      });
    }
    await t.test('rows with `sameAs` get the same response', () => {
      for (const { title, sameAs } of rows) {
        if (sameAs === undefined) continue;
        assert.deepEqual(lasting(answers.get(title)), lasting(answers.get(sameAs)), `${title}; ${sameAs}`);
      }
    });
    await t.test('every response has a unique request id, which is in the log', async () => {
      await Promise.all([services.none.close(), services['/v1'].close()]);
      const given = [...answers.values()].map((answer) => headerOf(answer.headers, 'x-request-id'));
      const logged = new Map<unknown, unknown>(
        [...services.none.logLines, ...services['/v1'].logLines]
          .map(requestOfLine)
          .filter(([, status]) => status !== undefined),
      );
      assert.equal(new Set(given).size, rows.length);
      for (const [title, answer] of answers) {
        const id = headerOf(answer.headers, 'x-request-id');
        assert.equal(logged.get(id ?? ''), answer.status, `the log line of the row: ${title}`);
      }
    });
  });
}

for (const engine of engines) {
  test(`body far above the limit → the client still reads the error response, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    for (const [path, status] of [
      ['/plants', 413],
      ['/plants/7', 405],
      ['/nothing', 404],
    ] as const) {
      const body = Buffer.alloc(5_000_000, ' ');
      const response = await fetch(service.url + path, { method: 'POST', headers, body });
      assert.equal(response.status, status);
      assert.match(await response.text(), new RegExp(`^\\{"error":${status}`));
    }
    await service.close();
  });
}

test('API table: 140 rows or more, unique titles, valid references', () => {
  const titles = new Set(rows.map(({ title }) => title));
  assert.ok(rows.length >= 140, `the table has ${rows.length} rows`);
  assert.equal(titles.size, rows.length);
  for (const { sameAs } of rows) assert.ok(sameAs === undefined || titles.has(sameAs), `${sameAs}`);
});

test('API table: error rows have a code that matches the status, and a name for 40000', () => {
  for (const { title, status, error, names, body } of rows) {
    if (status < 400) assert.equal(error, undefined, title);
    else assert.equal(Math.floor((error ?? 0) / 100), status, title);
    if (error === 40000 && body !== '{}') assert.notEqual(names, undefined, title);
  }
});

test('API table: rows for every error that a request can cause', () => {
  const seen = new Set(rows.flatMap(({ error }) => (error === undefined ? [] : [error])));
  assert.deepEqual(
    errorCodes.filter((code) => !seen.has(code)),
    NOT_BY_REQUEST,
  );
});

async function ask(service: TestService, owner: string, row: Scenario): Promise<RawAnswer> {
  await plant(service, owner, row);
  const next = await exchangeAll(service, owner, row.before ?? []);
  const secret = await secretOf(service, owner, row.token ?? 'full');
  const fill = (text: string) => fillIn(text, { ...next, token: secret });
  return send(service, row, fill);
}

function fillIn(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{(token|next|cursor)\}/g, (_, name: string) => {
    const value = values[name];
    assert.ok(value !== undefined, `no value for {${name}}`);
    return value;
  });
}

function send({ url }: TestService, row: Scenario, fill: (text: string) => string): Promise<RawAnswer> {
  if (row.raw !== undefined) return sendRaw(url, fill(row.raw), { endsEarly: row.endsEarly ?? false });
  const { method, path, headers = [], body, authorization = ['Bearer {token}'] } = row;
  const credentials = authorization.map((value) => ['Authorization', fill(value)] as const);
  const filled = headers.map(([name, value]) => [name, fill(value)] as const);
  return sendRequest(url, { method, path: fill(path), headers: [...credentials, ...filled], body });
}

function checkAnswer(row: Scenario, { status, headers, body, interim }: RawAnswer): void {
  const text = body.toString();
  assert.equal(status, row.status, text);
  assert.deepEqual(interim, row.interim ?? []);
  const names = headers.map(([name]) => name.toLowerCase());
  assert.equal(new Set(names).size, names.length, `a header is there twice: ${names.join(', ')}`);
  const received = new Map(headers.map(([name, value]) => [name.toLowerCase(), value]));
  assert.match(received.get('x-request-id') ?? '', /^[\w-]{8,}$/);
  // RFC 9110 §6.6.1
  assert.ok(Date.parse(received.get('date') ?? '') > 0, 'there is no Date');
  for (const [name, expected] of Object.entries(row.answers ?? {})) {
    checkText(received.get(name) ?? null, expected, name);
  }
  const allowed = received.get('allow')?.split(', ').sort();
  assert.deepEqual(allowed, row.allows, 'the methods in Allow');
  if (row.error !== undefined) checkError(row, received, text);
  else if (row.answer !== undefined) checkText(text, row.answer, 'the body');
  if (status === 204) assert.equal(text, '');
}

function checkText(received: string | null, expected: string | RegExp | null, what: string): void {
  if (expected instanceof RegExp) assert.match(received ?? '', expected, what);
  else assert.equal(received, expected, what);
}

function checkError({ method, error, names }: Scenario, headers: Map<string, string>, text: string): void {
  assert.equal(headers.get('content-type'), 'application/json');
  assert.equal(headers.get('cache-control'), 'no-store');
  if (error === 40100 || error === 40101 || error === 40300) assert.ok(headers.has('www-authenticate'));
  assert.equal(headers.has('allow'), error === 40500, 'Allow is sent with 405 only');
  if (method === 'HEAD') {
    assert.equal(text, '');
    return;
  }
  const body: unknown = JSON.parse(text);
  assert.ok(typeof body === 'object' && body !== null && 'error' in body && 'message' in body);
  assert.deepEqual(Object.keys(body), ['error', 'message']);
  assert.equal(body.error, error);
  assert.ok(typeof body.message === 'string' && body.message !== '');
  assert.ok(names === undefined || mentions(body.message, names), `${body.message} does not name ${names}`);
}

/** Checks that a text has a word, not only as a part of another: `id`, but not `invalid`. */
function mentions(text: string, word: string): boolean {
  const parts = text.split(word);
  return parts.some((part, index) => {
    const rest = parts.slice(index + 1).join(word);
    return index < parts.length - 1 && !/[\w-]$/.test(part) && !/^[\w-]/.test(rest);
  });
}

/** Returns a response without the headers that differ for each request. */
function lasting(answer: RawAnswer | undefined) {
  assert.ok(answer !== undefined, 'the row has no response');
  const headers = answer.headers.filter(([name]) => !['x-request-id', 'date'].includes(name.toLowerCase()));
  return { status: answer.status, headers, body: answer.body.toString('latin1') };
}

function requestOfLine(line: string): [string, unknown] {
  const entry: unknown = JSON.parse(line);
  assert.ok(typeof entry === 'object' && entry !== null);
  return [String(Reflect.get(entry, 'requestId')), Reflect.get(entry, 'status')];
}
