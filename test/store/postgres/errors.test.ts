// cspell:words mdextend mdzeroextend
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  isLoginRejected,
  isUnsupported,
  noConnection,
  toStoreError,
} from '../../../src/store/postgres/errors.ts';
import {
  NothingStored,
  StatementRejected,
  StoreDamaged,
  StoreUnavailable,
} from '../../../src/store/store.ts';

/** An error with the fields of one that PostgreSQL sends. */
function serverError(code: string, routine: string): Error {
  return Object.assign(new Error('rejected'), { severity: 'ERROR', code, routine });
}

for (const routine of ['GetNewTransactionId', 'GetNewMultiXactId'])
  test(`no more transaction ids (${routine}) → nothing stored`, () => {
    assert.ok(toStoreError(serverError('54000', routine)) instanceof NothingStored);
  });

test('another limit of the server → the statement is rejected', () => {
  assert.ok(toStoreError(serverError('54000', 'heap_form_tuple')) instanceof StatementRejected);
});

for (const routine of ['mdextend', 'mdzeroextend'])
  test(`no room on the disk for a table (${routine}) → nothing stored`, () => {
    assert.ok(toStoreError(serverError('53100', routine)) instanceof NothingStored);
  });

for (const code of ['25006', '40001', '40P01', '42P01', '42P10', '55P03'])
  test(`${code}, with which the server rejects a transaction → nothing stored`, () => {
    assert.ok(toStoreError(serverError(code, 'any')) instanceof NothingStored);
  });

test('a statement that some servers lack → unsupported, other errors are not', () => {
  for (const code of ['0A000', '42601', '42703', '42883'])
    assert.ok(isUnsupported(serverError(code, 'any')), code);
  assert.ok(!isUnsupported(serverError('42501', 'any')));
});

for (const code of '08006 25P02 25P03 25P04 28P01 3D000 40003 53100 57014 57P01 58030 XX000'.split(' '))
  test(`${code}, which may come after the commit → outcome unknown`, () => {
    const error = toStoreError(serverError(code, 'any'));
    assert.ok(error instanceof StoreUnavailable);
    assert.ok(!(error instanceof NothingStored || error instanceof StoreDamaged));
  });

for (const code of ['XX001', 'XX002'])
  test(`${code}, a damaged page or index → damaged, so that a check reports it`, () => {
    assert.ok(toStoreError(serverError(code, 'any')) instanceof StoreDamaged);
  });

for (const [code, isWaitedOut] of [
  ['53300', true],
  ['28P01', true],
  ['42501', true],
  ['57P01', false],
  ['57P03', false],
] as const)
  test(`${code} at a login → requests ${isWaitedOut ? 'wait for open connections' : 'try the next host'}`, () => {
    assert.equal(isLoginRejected(serverError(code, 'any')), isWaitedOut);
  });

test('host of the database URL is unknown → the message has the remedy', () => {
  const error = Object.assign(new Error('getaddrinfo ENOTFOUND plants.invalid'), { code: 'ENOTFOUND' });
  assert.equal(
    noConnection(error).message,
    'no connection to PostgreSQL: getaddrinfo ENOTFOUND plants.invalid (there is no such host; correct the database URL)',
  );
});
