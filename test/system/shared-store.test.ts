import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { newInstallation, type Service, TOGETHER } from '../support/program.ts';

const isWarning = ({ msg }: { readonly msg?: unknown }) => /another service/.test(String(msg));

function warnings({ log }: Service): readonly unknown[] {
  return log.filter(isWarning).map(({ level }) => level);
}

describe('two services on one SQLite file', TOGETHER, () => {
  it('the second logs a warning, and both serve', async (t) => {
    const installation = await newInstallation(t);
    const first = await installation.serve();
    const second = await installation.serve();
    const { level, store } = await second.logged(isWarning);
    assert.equal(level, 40);
    assert.match(String(store), /plants\.db$/);
    for (const { adminUrl } of [first, second]) assert.equal((await fetch(`${adminUrl}/ready`)).status, 200);
    assert.deepEqual(warnings(first), []);
  });

  for (const how of ['SIGTERM', 'SIGKILL'] as const) {
    it(`the first ended by ${how} → no warning`, async (t) => {
      const installation = await newInstallation(t);
      const first = await installation.serve();
      const lock = `${installation.file}-service`;
      assert.ok(existsSync(lock));
      first.kill(how);
      await first.ended;
      assert.equal(existsSync(lock), how === 'SIGKILL');
      const second = await installation.serve();
      await second.stop();
      assert.deepEqual(warnings(second), []);
    });
  }

  it('commands next to a service → no warning', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve();
    for (const args of [['token', 'create', 'alice'], ['check']]) {
      const { code, stderr } = await installation.run(args);
      assert.equal(code, 0, stderr);
      assert.doesNotMatch(stderr, /another service/);
    }
    assert.deepEqual(warnings(service), []);
  });
});
