import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileBodyCheck } from '../../../src/http/protocol/request-validation.ts';
import { Type } from '../../../src/schema.ts';

const Note = Type.Object({
  note: Type.String({ description: 'A note.' }),
  count: Type.Optional(Type.Integer({ description: 'A number.', minimum: 0, maximum: 9 })),
});

describe('compileBodyCheck', () => {
  it('returns the fields of its schema, and drops others', () => {
    const check = compileBodyCheck(Note);
    assert.deepEqual(check(Buffer.from('{"note": "x", "count": 7, "name": "Alder"}')), {
      note: 'x',
      count: 7,
    });
    assert.throws(() => check(Buffer.from('{"name": "Alder"}')), /the field `note` is required/);
  });
});
