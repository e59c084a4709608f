import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ApiError, errorCodes, errorMeanings, statusOf } from '../src/api-errors.ts';

describe('the table of errors', () => {
  test('codes are int32 in ascending order, and begin with a status of an error', () => {
    assert.deepEqual(errorCodes.map(String), Object.keys(errorMeanings));
    for (const code of errorCodes) assert.ok(statusOf(code) >= 400 && statusOf(code) < 600, String(code));
    assert.deepEqual(errorCodes, errorCodes.toSorted());
  });

  test('status → the code without its last two digits', () => {
    assert.deepEqual(
      [statusOf(40000), statusOf(40004), statusOf(40101), statusOf(50302)],
      [400, 400, 401, 503],
    );
  });

  test('every meaning is there, and in one line', () => {
    for (const meaning of Object.values(errorMeanings)) assert.match(meaning, /^\S.{8,}\S$/);
  });
});

describe('ApiError', () => {
  test('keeps its code, message and headers', () => {
    const error = new ApiError(50301, 'too many', { 'retry-after': '1' });
    assert.deepEqual(
      [error.name, error.code, error.message, error.headers],
      ['ApiError', 50301, 'too many', { 'retry-after': '1' }],
    );
  });

  test('has no headers unless they are given', () => {
    assert.deepEqual(new ApiError(40400, 'absent').headers, {});
  });
});
