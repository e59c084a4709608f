import assert from 'node:assert/strict';
import { stat } from 'node:fs/promises';
import { test } from 'node:test';
import { fillStore } from '../long/long-list.ts';
import {
  CAN_LIFT_LIMITS,
  create,
  createUntilFailure,
  inspect,
  liftLimit,
  limitedUntilLifted,
  MANY,
  SHORT_NAME,
} from '../support/faults/disk-limits.ts';
import { newInstallation } from '../support/program.ts';

/** Smaller than the filled store, with room in the write-ahead log for some checkpoints. */
const LIMIT_KIB = 2_048;

/** Sorted after those of the filled store, so that their plants go to the end of the file. */
const LAST_IDS = 9_200_000_000_000_000_000n;

test(
  'checkpoints fail, then writes: each is logged once and counted, /ready is 200, and both recover',
  CAN_LIFT_LIMITS,
  async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    await fillStore(installation.databaseUrl, 'alice', 30_000, 100);
    // The file exceeds the limit already. The write-ahead log reaches it some checkpoints later.
    assert.ok((await stat(installation.file)).size > LIMIT_KIB * 1_024);
    const service = await installation.serve({
      env: { NODE_ENV: 'production' },
      wrap: (command) => limitedUntilLifted(command, LIMIT_KIB),
    });
    const lines = (msg: RegExp) => service.log.filter((line) => msg.test(String(line.msg)));
    const metric = async (name: string) => {
      const text = await (await fetch(`${service.adminUrl}/metrics`)).text();
      return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
    };
    assert.equal(await metric('plant_store_checkpoint_failures_total'), 0);

    const full = await createUntilFailure(service, token, { name: SHORT_NAME, from: LAST_IDS, limit: MANY });
    assert.deepEqual(full.failure, { status: 503, error: 50300, retryAfter: '1', isUnknown: false });
    assert.ok(
      full.acknowledged.length > 128,
      `${full.acknowledged.length} writes, too few for two checkpoints`,
    );
    for (let more = 0n; more < 3n; more += 1n) await create(service, token, LAST_IDS - 1n - more, SHORT_NAME);
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    await service.logged(({ msg }) => /^writes fail/.test(String(msg)));
    assert.deepEqual(
      [...lines(/^checkpoints fail/), ...lines(/^writes fail/)].map(({ level, failures }) => [
        level,
        failures,
      ]),
      [
        [40, 1],
        [50, 1],
      ],
    );
    assert.ok((await metric('plant_store_checkpoint_failures_total')) >= 2);
    assert.ok((await metric('plant_store_wal_bytes')) > (LIMIT_KIB / 2) * 1_024);

    liftLimit(service);
    const acknowledged: bigint[] = [];
    // Both succeed again once they have not failed for ten seconds.
    while (lines(/ succeed again$/).length < 2) {
      const from = LAST_IDS + 10_000n + BigInt(acknowledged.length);
      const after = await createUntilFailure(service, token, { name: SHORT_NAME, from, limit: 130 });
      assert.equal(after.failure, undefined);
      acknowledged.push(...after.acknowledged);
    }
    assert.equal((await service.stop()).code, 0);
    const { ids, integrity } = inspect(installation.file);
    assert.equal(integrity, 'ok');
    assert.deepEqual(
      [...full.acknowledged, ...acknowledged].filter((id) => !ids.has(id)),
      [],
    );
  },
);
