import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { isWellFormedSecret, mintSecret } from '../../../src/token.ts';
import { compareTimings, describeTiming, guessesFor, T_LIMIT, timeService } from '../../long/timing.ts';
import { serve } from '../../support/servers/stub-server.ts';

const TRIES = 2_000;

describe('time to reject a token', () => {
  it('same whether the first or the last character is wrong', async (t) => {
    for (const [kind, timing] of Object.entries(await timeService(TRIES, 1))) {
      t.diagnostic(`${kind}: ${describeTiming(timing)}`);
      assert.ok(Math.abs(timing.t) < T_LIMIT, `${kind}: ${describeTiming(timing)}`);
    }
  });

  it('the guesses differ in the intended characters', () => {
    const token = mintSecret();
    for (const hasChecksum of [true, false]) {
      const { early, late } = guessesFor(token, { hasChecksum });
      assert.equal(new Set([token, ...early, ...late]).size, 1 + 61 + 61);
      for (const guess of [...early, ...late]) assert.equal(isWellFormedSecret(guess), hasChecksum, guess);
      for (const guess of late) assert.equal(guess.slice(0, 40), token.slice(0, 40));
    }
  });

  it('detects a service that compares character by character', async (t) => {
    const token = mintSecret();
    const url = await serve(t, (request, response) => {
      const guess = request.headers.authorization?.slice('Bearer '.length) ?? '';
      let at = 0;
      while (at < token.length && isSame(token.charAt(at), guess.charAt(at))) at += 1;
      response.writeHead(at === token.length ? 200 : 401, { 'content-length': 0 }).end();
    });
    const guesses = guessesFor(token, { hasChecksum: true });
    const timing = await compareTimings({
      url,
      guesses,
      tries: TRIES,
      seed: 1,
    });
    assert.ok(timing.t < -T_LIMIT, describeTiming(timing));
  });
});

/** Slow enough to be measured over a network in 2,000 tries, also on a busy machine. */
function isSame(one: string, other: string): boolean {
  const digest = (text: string): string => createHash('sha256').update(text.repeat(10_000)).digest('hex');
  return digest(one) === digest(other);
}
