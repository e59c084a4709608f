import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const { scripts }: { scripts: Record<string, string> } = JSON.parse(
  await readFile(`${ROOT}package.json`, 'utf8'),
);
const long = Object.entries(scripts)
  .filter(([name]) => name.startsWith('test:'))
  .flatMap(([, script]) => /^node (test\/\S+\.ts)/.exec(script)?.[1] ?? []);

async function run(...args: readonly string[]) {
  return runWith(process.env, args);
}

async function runWith(env: NodeJS.ProcessEnv, args: readonly string[]) {
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { code, stdout, stderr };
}

describe('the long programs', { concurrency: 2 }, () => {
  for (const file of [...long, 'deploy/try-haproxy.ts', 'bench/capacity/run.ts', 'bench/run.ts']) {
    test(`${file} --help prints its purpose and flags, and does nothing else`, async () => {
      const { code, stdout, stderr } = await run(file, '--help');
      assert.deepEqual([code, stderr], [0, '']);
      assert.match(
        stdout,
        /^[A-Z].+\.\n(?:\n {2}[a-z].+(?:\n {2}[a-z].+)*\n)?\n(?: {2}--[a-z-]+(?: \S+)? +.+\n)*$/,
      );
    });
  }

  for (const { file, needs } of [
    {
      file: 'test/long/patroni/patroni.ts',
      needs: /^not run: needs patroni 4 .*pip.*etcd .*apt-get.*pgbouncer/,
    },
    { file: 'test/long/distributed/distributed.ts', needs: /^not run: needs citus .*packages.*--pg-config/ },
    { file: 'test/long/litestream.ts', needs: /^not run: needs litestream .*go install/ },
  ]) {
    test(`${file} without its programs → says so, and how to get them`, async () => {
      const { code, stdout } = await runWith({ PATH: '/nowhere' }, [file]);
      assert.equal(code, 1);
      assert.match(stdout, needs);
    });
  }

  test('are known to this test', () => {
    assert.ok(long.length >= 14);
  });

  for (const args of [
    ['--round', '3'],
    ['--acknowledgements', 'many'],
    ['--acknowledgements'],
    ['--death', 'sleep'],
  ]) {
    test(`reject ${args.join(' ')} in a line that names it`, async () => {
      const { code, stdout, stderr } = await run('test/long/failover.ts', ...args);
      assert.deepEqual([code, stdout], [2, '']);
      assert.match(stderr, new RegExp(`^.*${args[0]}\\b.*--help.*\n$`));
    });
  }
});
