import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it } from 'node:test';
import { type Answer, Connection } from './connection.ts';
import { fillStore } from './long-list.ts';
import { endOf, type Installation, newInstallation, type Service } from './program.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const TOGETHER = { concurrency: 2 };
const KIBIBYTE = 1_024;
const LONG_NAME = 'x'.repeat(16 * KIBIBYTE);
const MANY = 2_000;

/** Fsyncs of a thread that work before all others fail: enough to start and to acknowledge some writes. */
const FSYNCS_THAT_WORK = 20;

describe('an fsync that fails at a commit', () => {
  it('is never answered with success and ends the service; the next start is clean', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const strace = canRun('strace', ['-o', '/dev/null', 'true']);
    // Without strace an fsync cannot be made to fail; a file that was damaged ends the service in the same way.
    if (!strace) t.diagnostic('strace is not here: damage to the file stands in for the fsync that fails');
    const service = await installation.serve({ env: PRODUCTION, ...(strace ? { wrap: failingFsync } : {}) });
    const acknowledged = await createUntil(service, token, strace ? MANY : 10);
    if (!strace) await damage(installation.file);
    const { last, ended } = await endsByItself(service, token, BigInt(acknowledged));
    assert.ok(last === undefined || last.status === 503, `the write got ${last?.status}`);
    assert.ok(acknowledged > 0, 'no write was acknowledged before');
    assert.equal(ended.code, 1);
    if (!strace) return;

    const again = await installation.serve({ env: PRODUCTION });
    const stored = await readIds(again, installation);
    for (let id = 0; id < acknowledged; id += 1) assert.ok(stored.has(BigInt(id)), `plant ${id} is missing`);
    // The write that failed may have happened, or not: that is what its 503 says.
    assert.ok(stored.size <= acknowledged + 1, 'plants appeared that were never acknowledged');
    assert.equal(await createUntil(again, token, 3, 100_000n), 3);
    assert.equal((await again.stop()).code, 0);
    assert.equal(integrityOf(installation.file), 'ok');
  });
});
