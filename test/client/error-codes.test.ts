import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { ErrorCode } from '../../client/src/client.ts';
import { type ErrorCode as CodeOfService, errorCodes, errorMeanings } from '../../src/api-errors.ts';

// Both compile only when the two unions are equal.
const toClient = (code: CodeOfService): ErrorCode => code;
const toService = (code: ErrorCode): CodeOfService => code;

test('the client has exactly the error codes of the service', () => {
  assert.deepEqual(Object.values(ErrorCode).map(toService), errorCodes.map(toClient));
});

test('the comment of each error code in the client is its meaning in the service', async () => {
  const source = await readFile(new URL('../../client/src/error-codes.ts', import.meta.url), 'utf8');
  const rows = [...source.matchAll(/\/\*\* (.*) \*\/\n {2}\w+: (\d+),/g)].map(([, text, code]) => [
    code,
    text,
  ]);
  assert.deepEqual(Object.fromEntries(rows), { ...errorMeanings });
});
