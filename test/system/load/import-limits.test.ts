import assert from 'node:assert/strict';
import { test } from 'node:test';
import { csv } from '../../../src/formats/csv.ts';
import { FileInvalid, MAX_LINE_BYTES } from '../../../src/formats/format.ts';
import { ndjson } from '../../../src/formats/ndjson.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';
import { outline, read } from '../../support/read-plants.ts';

test('a plant whose export as NDJSON could not be imported → invalid', async () => {
  const syntax = '{"id":10,"name":""}'.length;
  const escapes = Math.floor((MAX_LINE_BYTES - syntax) / '\\u0001'.length);
  const rest = MAX_LINE_BYTES - syntax - escapes * '\\u0001'.length;
  const longest = '\u0001'.repeat(escapes) + 'x'.repeat(rest);
  const reason = `the plant is longer than ${MAX_LINE_BYTES} bytes as a line of NDJSON`;
  const cells = ['id,name', `10,${longest}`, `11,${longest}x`, '12,good'];
  const [second, ...others] = await outline(csv, cells.join('\n'));
  assert.ok(second === `2: ${longest}`);
  assert.deepEqual(others, [`3: ${reason}`, '4: good']);
  // The export has 1000 instead of 1e3.
  const line = `{"id":1e3,"name":"${'x'.repeat(MAX_LINE_BYTES - syntax - 1)}"}`;
  assert.deepEqual(await outline(ndjson, line), [`1: ${reason}`]);
});

test('a line with many misplaced quotes → ends the import before they take much time', async () => {
  for (const chunk of [512, 64 * 1024]) {
    await assert.rejects(
      read(csv, `id,name\n1,first\n2,${'a"'.repeat(MEBIBYTE)}\n3,last\n`, chunk),
      new FileInvalid('line 3 has too many misplaced quotation marks'),
    );
  }
});

test('misplaced quotes in a long cell, or in each of many lines → the other lines are read', async () => {
  const long = 'x'.repeat(MEBIBYTE);
  const lines = `1,${'abc"'.repeat(200)}\n`.repeat(700);
  const outlined = await outline(csv, `id,name\n1,${long}"${long}"\n${lines}2,last\n`);
  assert.equal(outlined.length, 702);
  assert.equal(outlined.at(-1), '703: last');
});

test('unclosed quote in a long file → ends the import at the longest line', async () => {
  const endless = Buffer.concat([Buffer.from('id,name\n1,"'), Buffer.alloc(MAX_LINE_BYTES + 1, 'x')]);
  await assert.rejects(
    read(csv, endless),
    new FileInvalid(`line 2 or the quoted text in it is longer than ${MAX_LINE_BYTES} bytes`),
  );
});
