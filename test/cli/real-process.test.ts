import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { newInstallation, TOGETHER } from '../support/program.ts';

// The other tests of commands run them in this process.
describe('command in its own process, with relative paths', TOGETHER, () => {
  for (const { args, prints = /^$/, says = '', creates } of [
    { args: ['--version'], prints: /^\d+\.\d+\.\d+\n$/ },
    { args: ['migrate'], prints: /^nothing to apply\n$/ },
    { args: ['token', 'create', 'alice'], prints: /^plt_\w{49}\n$/, says: '"audit":"tokenCreated"' },
    { args: ['token', 'list'], prints: /^ID .*\n\w{12} +alice .*\n$/ },
    { args: ['import', 'bob', 'plants.ndjson'], prints: /^1 plant of bob created\n$/ },
    { args: ['export', 'alice', 'out.csv'], says: '1 plant of alice exported', creates: 'out.csv' },
    { args: ['copy', 'sqlite:plants.db', 'sqlite:copy.db'], prints: /1 plant /, creates: 'copy.db' },
    { args: ['backup', 'backup.db'], says: 'checked', creates: 'backup.db' },
    { args: ['check'], prints: /^sound: 1 plant, 1 token, / },
    { args: ['openapi'], prints: /"openapi": "3\.1\.0"/ },
  ])
    it(args.join(' '), async (t) => {
      const { folder, run, runProcess, token } = await newInstallation(t);
      await token();
      await writeFile(join(folder, 'plants.ndjson'), '{"id":1,"name":"Alder"}\n');
      assert.equal((await run(['import', 'alice', 'plants.ndjson'])).code, 0);
      const env = { DATABASE_URL: 'sqlite:plants.db' };
      const { code, signal, stdout, stderr } = await runProcess(args, { env });
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, stderr);
      assert.match(stdout, prints);
      assert.ok(stderr.includes(says), stderr);
      if (creates !== undefined) assert.ok(readdirSync(folder).includes(creates));
    });

  it('token revoke', async (t) => {
    const { runProcess, token } = await newInstallation(t);
    const { code, stdout } = await runProcess(['token', 'revoke', await token()]);
    assert.deepEqual([code, stdout.split(' ')[0]], [0, 'revoked']);
  });

  it('serve', async (t) => {
    const service = await (await newInstallation(t)).serve();
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    assert.equal((await service.stop()).code, 0);
  });

  it('file name that is not UTF-8 → rejected, and no file is created', async (t) => {
    const { folder, runProcess, token } = await newInstallation(t);
    await token();
    const before = readdirSync(folder);
    const wrap = (command: readonly string[]) => ['bash', '-c', `exec "$@" $'a\\xff.db'`, 'bash', ...command];
    const { code, stderr } = await runProcess(['backup'], { wrap });
    assert.deepEqual([code, readdirSync(folder).filter((name) => name !== '.cache')], [1, before]);
    assert.match(stderr, /The name must be UTF-8/);
  });

  it('the working directory was deleted → rejected, and no file is created', async (t) => {
    const { folder, runProcess } = await newInstallation(t);
    const script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"';
    const wrap = (command: readonly string[]) => ['bash', '-c', script, 'bash', ...command];
    for (const args of [
      ['token', 'create', 'alice'],
      ['serve', '--port', '0', '--admin-port', '0'],
      ['backup', 'plants.bak'],
    ]) {
      const { code, stdout, stderr } = await runProcess(args, { wrap });
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(
        stderr,
        /^plant-store: the working directory was deleted; change to a folder that exists\n$/,
      );
    }
    assert.deepEqual(
      readdirSync(folder).filter((name) => name !== '.cache'),
      [],
    );
    assert.equal((await runProcess(['--version'], { wrap })).code, 0);
  });

  it('failure → exit code 1 and one line', async (t) => {
    const { folder, runProcess } = await newInstallation(t);
    const { code, stdout, stderr } = await runProcess(['check', '--database-url', 'sqlite:nosuch.db']);
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(
      stderr,
      new RegExp(`^plant-store: there is no store at ${RegExp.escape(folder)}/nosuch\\.db; .*\n$`),
    );
  });
});
