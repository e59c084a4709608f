import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ApiError } from '../../../src/api-errors.ts';
import { createRejectedTokens, type RejectedTokens } from '../../../src/http/auth/rate-limit.ts';

const MINUTE_MS = 60_000;

/** Rejected tokens with a clock that the test sets. */
function limited(limit: number) {
  const clock = { now: 1_000_000 };
  return { clock, tokens: createRejectedTokens(limit, () => clock.now) };
}

/** The answer to a token before its lookup: undefined, or Retry-After and the message of a 42900. */
function answerTo(tokens: RejectedTokens, address: string, secret: string) {
  try {
    tokens.rejectBeyond(address, secret);
    return undefined;
  } catch (error: unknown) {
    assert.ok(error instanceof ApiError);
    assert.equal(error.code, 42900);
    return { retryAfter: error.headers['retry-after'], message: error.message };
  }
}

/** A client that sends an invalid token, which is looked up unless a limit is reached. */
function send(tokens: RejectedTokens, address: string, secret: string): boolean {
  if (tokens.isKnownInvalid(address, secret) || answerTo(tokens, address, secret) !== undefined) return false;
  tokens.rejected(address, secret);
  return true;
}

describe('invalid tokens of an address', () => {
  test('as many distinct ones as the limit are looked up; then 42900, also for others', () => {
    const { tokens } = limited(3);
    const sent = ['a', 'b', 'c', 'd'].map((secret) => send(tokens, '192.0.2.1', secret));
    assert.deepEqual(sent, [true, true, true, false]);
    const answer = answerTo(tokens, '192.0.2.1', 'valid, and never seen');
    assert.match(answer?.message ?? '', /^too many tokens from this address .*; retry in 60 s$/);
    assert.equal(answer?.retryAfter, '60');
    assert.ok(send(tokens, '192.0.2.2', 'd'));
  });

  test('a minute from the first one, the limit starts again; Retry-After counts down to at least 1', () => {
    const { clock, tokens } = limited(1);
    assert.ok(send(tokens, '192.0.2.1', 'a'));
    for (const [after, seconds] of [
      [0, '60'],
      [1, '60'],
      [1_000, '59'],
      [MINUTE_MS - 1_001, '2'],
      [MINUTE_MS - 1, '1'],
      [MINUTE_MS, '1'],
    ] as const) {
      clock.now = 1_000_000 + after;
      assert.equal(answerTo(tokens, '192.0.2.1', 'b')?.retryAfter, seconds, `after ${after} ms`);
    }
    clock.now = 1_000_000 + MINUTE_MS + 1;
    assert.ok(send(tokens, '192.0.2.1', 'b'));
  });

  test('a client repeats one token → it alone is not looked up again, for a minute', () => {
    const { clock, tokens } = limited(2);
    assert.deepEqual(
      [1, 2, 3].map(() => send(tokens, '192.0.2.1', 'a')),
      [true, true, false],
    );
    assert.equal(answerTo(tokens, '192.0.2.1', 'a'), undefined);
    assert.ok(send(tokens, '192.0.2.1', 'b'));
    assert.match(answerTo(tokens, '192.0.2.1', 'c')?.message ?? '', /address/);
    assert.ok(tokens.isKnownInvalid('192.0.2.1', 'a'));
    clock.now += MINUTE_MS + 1;
    assert.ok(send(tokens, '192.0.2.1', 'a'));
  });

  test('a token that is known as invalid is accepted from another address → it is looked up again', () => {
    const { tokens } = limited(1);
    assert.ok(send(tokens, '192.0.2.1', 'a'));
    assert.ok(tokens.isKnownInvalid('192.0.2.1', 'a'));
    tokens.accepted('a', 'alice');
    assert.ok(send(tokens, '192.0.2.1', 'a'));
  });

  test('addresses of one IPv6 network share a limit; the same token from another network counts apart', () => {
    const { tokens } = limited(1);
    assert.ok(send(tokens, '2001:db8::1', 'a'));
    assert.ok(!send(tokens, '2001:db8::2', 'b'));
    assert.ok(send(tokens, '2001:db8:0:1::1', 'a'));
  });
});

test('a token that was valid before → not limited, until it is rejected', () => {
  const { tokens } = limited(1);
  tokens.accepted('known', 'alice');
  assert.ok(send(tokens, '192.0.2.1', 'a'));
  assert.notEqual(answerTo(tokens, '192.0.2.1', 'b'), undefined);
  assert.ok(send(tokens, '192.0.2.1', 'known'));
  assert.ok(!send(tokens, '192.0.2.1', 'known'));
});

test('lookup failed → the token counts once for its address, and is not limited', () => {
  const { tokens } = limited(2);
  tokens.accepted('known', 'alice');
  for (let times = 0; times < 3; times += 1) {
    tokens.undecided('192.0.2.1', 'a');
    tokens.undecided('192.0.2.1', 'known');
  }
  assert.equal(answerTo(tokens, '192.0.2.1', 'a'), undefined);
  tokens.undecided('192.0.2.1', 'b');
  assert.match(answerTo(tokens, '192.0.2.1', 'a')?.message ?? '', /address/);
  assert.equal(answerTo(tokens, '192.0.2.1', 'known'), undefined);
  assert.equal(answerTo(tokens, '192.0.2.2', 'a'), undefined);
});

test('limit 0 → no limit', () => {
  const { tokens } = limited(0);
  for (let count = 0; count < 100; count += 1) assert.ok(send(tokens, '192.0.2.1', 'a'));
  tokens.accepted('a', 'alice');
});
