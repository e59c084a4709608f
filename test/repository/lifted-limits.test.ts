import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { catalogue } from '../long/abuse/catalogue.ts';
import { LIFTED } from '../long/abuse/lifted-limits.ts';

const ROOT = join(import.meta.dirname, '../..');

describe('lifted limits', () => {
  for (const { limit, attack, edits = [] } of LIFTED) {
    test(`${limit} → its attack is in the catalogue, and the code to change exists`, async () => {
      assert.ok(catalogue.some(({ name }) => name === attack));
      for (const { file, from } of edits) {
        const source = await readFile(join(ROOT, file), 'utf8');
        assert.ok(source.includes(from), `${file}: ${from}`);
      }
    });
  }
});
