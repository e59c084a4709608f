import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mapOf, readYaml } from '../support/deploy-files.ts';

describe('deploy/patroni', () => {
  const [config = {}] = readYaml('deploy/patroni/patroni.yaml');
  const dcs = mapOf(mapOf(config.bootstrap).dcs);

  it('times → Patroni can retry once before its lock expires', () => {
    const [ttl, wait, retry] = [dcs.ttl, dcs.loop_wait, dcs.retry_timeout].map(Number);
    assert.ok((ttl ?? 0) >= (wait ?? 0) + 2 * (retry ?? 0));
  });

  it('acknowledged writes survive: a synchronous standby, and a watchdog', () => {
    assert.equal(dcs.synchronous_mode, true);
    assert.equal(mapOf(config.watchdog).mode, 'required');
  });
});
