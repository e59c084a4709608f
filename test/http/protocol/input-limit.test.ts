import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { InputHolder } from '../../../src/http/protocol/connection/connection-options.ts';
import { InputLimit, MAX_UNPARSED_BYTES } from '../../../src/http/protocol/connection/input-limit.ts';

test('input above the limit → that which waits longest is rejected, until the rest is within the limit', () => {
  const inputs = new InputLimit();
  const rejected: string[] = [];
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => holderOf({ rejected, name }));
  assert.ok(a && b && c && d);
  inputs.count(a, 1);
  inputs.count(b, 2);
  inputs.count(c, MAX_UNPARSED_BYTES - 3);
  // One that ends and begins again waits from then on.
  inputs.count(a, 0);
  inputs.count(a, 1);
  inputs.count(b, 1);
  inputs.count(d, 1);
  assert.deepEqual(rejected, []);
  inputs.count(d, 2);
  assert.deepEqual(rejected, ['b']);
  inputs.count(d, MAX_UNPARSED_BYTES);
  assert.deepEqual(rejected, ['b', 'c', 'a']);
  inputs.count(a, 1);
  assert.deepEqual(rejected, ['b', 'c', 'a', 'd']);
  inputs.count(a, MAX_UNPARSED_BYTES + 1);
  assert.deepEqual(rejected, ['b', 'c', 'a', 'd', 'a'], 'even alone');
  inputs.count(a, MAX_UNPARSED_BYTES);
  assert.equal(rejected.length, 5, 'rejected input does not count');
});

test('input above the limit → that which waits for the service is rejected last', () => {
  const inputs = new InputLimit();
  const rejected: string[] = [];
  const [pipeline, headers, body] = (
    [
      ['pipeline', false],
      ['headers', true],
      ['body', true],
    ] as const
  ).map(([name, waitsForClient]) => holderOf({ rejected, name, waitsForClient }));
  assert.ok(pipeline && headers && body);
  inputs.count(pipeline, 2);
  inputs.count(headers, MAX_UNPARSED_BYTES - 2);
  inputs.count(body, 1);
  assert.deepEqual(rejected, ['headers']);
  inputs.count(body, MAX_UNPARSED_BYTES);
  assert.deepEqual(rejected, ['headers', 'body']);
  inputs.count(pipeline, MAX_UNPARSED_BYTES + 1);
  assert.deepEqual(rejected, ['headers', 'body', 'pipeline']);
});

test('input that waits for the service above the limit → that of the address with the most is rejected first', () => {
  const inputs = new InputLimit();
  const rejected: string[] = [];
  const [other, flood, more, last] = (
    [
      ['other', '192.0.2.1'],
      ['flood', '192.0.2.2'],
      ['more', '192.0.2.2'],
      ['last', '192.0.2.1'],
    ] as const
  ).map(([name, address]) => holderOf({ rejected, name, address, waitsForClient: false }));
  assert.ok(other && flood && more && last);
  inputs.count(other, 10);
  inputs.count(flood, 10);
  inputs.count(more, MAX_UNPARSED_BYTES - 20);
  inputs.count(last, 1);
  assert.deepEqual(rejected, ['flood']);
  inputs.count(last, MAX_UNPARSED_BYTES);
  assert.deepEqual(rejected, ['flood', 'other', 'last'], 'the oldest of the address that has the most now');
});

test('one input above the limit takes the memory of thousands → all are rejected, however many', () => {
  const inputs = new InputLimit();
  const rejected: string[] = [];
  const count = 20_000;
  for (let index = 0; index < count; index += 1) {
    const holder: InputHolder = {
      address: undefined,
      waitsForClient: true,
      // As a connection does.
      rejectInput: () => {
        inputs.count(holder, 0);
        rejected.push(String(index));
      },
    };
    inputs.count(holder, 1);
  }
  const large = holderOf({ rejected, name: 'large', waitsForClient: false });
  inputs.count(large, MAX_UNPARSED_BYTES);
  assert.equal(rejected.length, count);
  assert.equal(rejected.includes('large'), false);
});

test('thousands of inputs that wait for the service, each from another address → each is looked at once', () => {
  const inputs = new InputLimit();
  const rejected: string[] = [];
  const count = 200_000;
  let looks = 0;
  for (let index = 0; index < count; index += 1) {
    const holder = {
      ...holderOf({ rejected, name: String(index), address: `client ${index}` }),
      get waitsForClient() {
        looks += 1;
        return false;
      },
    };
    inputs.count(holder, 1_024);
  }
  assert.equal(rejected.length, count - MAX_UNPARSED_BYTES / 1_024);
  assert.ok(looks <= count, `${looks} looks`);
});

interface HolderOptions {
  readonly name: string;
  readonly rejected: Pick<string[], 'push'>;
  readonly address?: string;
  readonly waitsForClient?: boolean;
}

/** Returns a connection that notes its name when its input is rejected. */
function holderOf({ name, rejected, address, waitsForClient = true }: HolderOptions): InputHolder {
  return { address, waitsForClient, rejectInput: () => void rejected.push(name) };
}
