import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import { decodeCursor, encodeCursor } from '../../../src/http/plants/cursor.ts';
import { INT64_MAX, INT64_MIN } from '../../../src/plant.ts';

const IDS = [INT64_MIN, INT64_MIN + 1n, -(2n ** 53n) - 1n, -1n, 0n, 1n, 2n ** 53n + 1n, INT64_MAX];

test('cursor of any id → 16 characters that decode to the id', () => {
  const cursors = IDS.map(encodeCursor);
  for (const cursor of cursors) assert.match(cursor, /^[A-Za-z0-9_-]{16}$/);
  assert.equal(new Set(cursors).size, IDS.length);
  assert.deepEqual(cursors.map(decodeCursor), IDS);
});

test('cursor → the id as 8 bytes, big-endian, and their CRC-32, so that clients can keep it over a release', () => {
  const bytes = Buffer.from(encodeCursor(258n), 'base64url');
  assert.deepEqual([...bytes.subarray(0, 8)], [0, 0, 0, 0, 0, 0, 1, 2]);
  assert.equal(bytes.readUInt32BE(8), crc32(bytes.subarray(0, 8)));
});

test('any changed, missing or additional character → undefined', () => {
  const cursor = encodeCursor(7n);
  for (const [at, character] of [...cursor].entries()) {
    const other = character === 'A' ? 'B' : 'A';
    assert.equal(decodeCursor(cursor.slice(0, at) + other + cursor.slice(at + 1)), undefined, `at ${at}`);
  }
  for (const wrong of [
    '',
    cursor.slice(1),
    `${cursor}A`,
    `A${cursor}`,
    ` ${cursor}`,
    `${cursor}\n`,
    `${cursor}=`,
  ])
    assert.equal(decodeCursor(wrong), undefined, JSON.stringify(wrong));
});

test('standard base64 in place of base64url → undefined', () => {
  const id = IDS.find((one) => /[-_]/.test(encodeCursor(one)));
  assert.ok(id !== undefined);
  const standard = encodeCursor(id).replaceAll('-', '+').replaceAll('_', '/');
  assert.equal(decodeCursor(standard), undefined);
});
