import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { CONFIRMED_MS, TOKEN_FRESH_MS } from '../../../src/http/auth/authentication.ts';
import { StoreUnavailable } from '../../../src/store/store.ts';
import { engines, type TestEngine } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { startService } from '../../support/service.ts';
import { create } from '../../support/store-setup.ts';

/** The end of a list, with or without chunks. */
const COMPLETE = /\](?:\r\n0\r\n\r\n)?$/;

/**
 * A list that was begun, whose client reads no further, and a store whose lookups of tokens fail while `fails`. A lookup
 * that succeeds takes `milliseconds` of the service's clock.
 */
async function begin(t: TestContext, engine: TestEngine, target: string) {
  const service = await startService(t, await engine.freshUrl(t));
  const secret = await service.token('alice');
  const name = 'x'.repeat(100_000);
  const plants = Array.from({ length: 100 }, (_, id) => create(BigInt(id), { owner: 'alice', name }));
  await Promise.all(plants.map((plant) => service.store.write(plant)));
  const lookups = { fails: false, failed: 0, found: 0, milliseconds: 0 };
  const find = service.store.findToken.bind(service.store);
  t.mock.method(service.store, 'findToken', async (...args: Parameters<typeof find>) => {
    if (lookups.fails) {
      lookups.failed += 1;
      throw new StoreUnavailable('the disk failed');
    }
    const found = await find(...args);
    service.clock.now += lookups.milliseconds;
    lookups.found += 1;
    return found;
  });
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
  t.after(() => socket.destroy());
  socket.write(
    `GET ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer ${secret}\r\n\r\n`,
  );
  await once(socket, 'readable');
  return { service, socket, lookups };
}

for (const engine of engines) {
  for (const target of ['/plants', '/plants?limit=1000']) {
    test(`lookups of the token fail until its last success is old → ${target} breaks off, on ${engine.name}`, async (t) => {
      const { service, socket, lookups } = await begin(t, engine, target);
      lookups.fails = true;
      service.clock.now += CONFIRMED_MS;
      await until(() => service.logLines.some((line) => line.includes('"status":503')));
      const failed = service.logLines.filter((line) => line.includes('"failed"'));
      assert.equal(failed.length, 1);
      assert.match(failed.join(''), /the disk failed/);
      assert.doesNotMatch(await text(socket).catch(() => ''), COMPLETE);
      await service.close();
    });

    test(`the last successful lookup of the token took long → its age counts from its begin for ${target}, on ${engine.name}`, async (t) => {
      const { service, socket, lookups } = await begin(t, engine, target);
      const { found } = lookups;
      lookups.milliseconds = CONFIRMED_MS;
      service.clock.now += TOKEN_FRESH_MS;
      await until(() => lookups.found > found);
      lookups.fails = true;
      await until(() => service.logLines.some((line) => line.includes('"status":503')));
      assert.equal(lookups.failed, 1);
      assert.doesNotMatch(await text(socket).catch(() => ''), COMPLETE);
      await service.close();
    });

    test(`a lookup of the token fails, the next one succeeds → ${target} goes on, on ${engine.name}`, async (t) => {
      const { service, socket, lookups } = await begin(t, engine, target);
      const { found } = lookups;
      for (let round = 1; round <= 3; round += 1) {
        const { failed } = lookups;
        lookups.fails = true;
        service.clock.now += TOKEN_FRESH_MS;
        await until(() => lookups.failed > failed);
        lookups.fails = false;
        await until(() => lookups.found >= found + round);
      }
      assert.match(await text(socket), COMPLETE);
      await service.close();
    });
  }
}
