import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { engines } from '../../support/engines.ts';
import { newInstallation, TOGETHER } from '../../support/program.ts';
import { bearer } from '../../support/service.ts';

const FERN = '{"id":7,"name":"Fern"}\n';

describe('commands while a service runs on the same store', TOGETHER, () => {
  for (const engine of engines) {
    it(`every command works, and the service sees its effect, on ${engine.name}`, async (t) => {
      const installation = await newInstallation(t);
      const { folder } = installation;
      const url = await engine.freshUrl(t);
      const env = { DATABASE_URL: url, NODE_ENV: 'production' };
      const service = await installation.serve({ env });
      const run = async (...args: readonly string[]): Promise<string> => {
        const { code, stdout, stderr } = await installation.run(args, { env });
        assert.equal(code, 0, `${args.join(' ')}: ${stderr}`);
        return stdout;
      };
      const list = async (secret: string): Promise<readonly [status: number, body: string]> => {
        const answer = await fetch(`${service.url}/plants`, { headers: bearer(secret) });
        return [answer.status, await answer.text()];
      };

      const secret = (await run('token', 'create', 'alice')).trim();
      assert.deepEqual(await list(secret), [200, '[]']);
      await writeFile(join(folder, 'plants.ndjson'), FERN);
      await run('import', 'alice', join(folder, 'plants.ndjson'));
      assert.deepEqual(await list(secret), [200, '[{"name":"Fern"}]']);
      assert.equal(await run('export', 'alice'), FERN);
      assert.equal(await run('migrate'), 'nothing to apply\n');
      assert.equal(await run('check'), 'sound: 1 plant, 1 token, 0 idempotency keys\n');
      assert.match(await run('copy', url, `sqlite:${join(folder, 'copy.db')}`), /1 plant\b/);
      // On PostgreSQL the command names pg_dump.
      if (engine.name === 'sqlite') await run('backup', join(folder, 'backup.db'));
      const [{ id }] = JSON.parse(await run('token', 'list', '--json'));
      await run('token', 'revoke', id);
      const deadline = performance.now() + 10_000;
      while ((await list(secret))[0] !== 401)
        assert.ok(performance.now() < deadline, 'the token is still valid');
      assert.equal((await service.stop()).code, 0);
    });
  }
});
