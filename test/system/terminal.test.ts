import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { appendFile, cp, readFile, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';
import manifest from '../../package.json' with { type: 'json' };
import { needsProgram } from '../support/needs.ts';
import { until } from '../support/patience.ts';
import { newInstallation } from '../support/program.ts';
import { freePort } from '../support/servers/free-port.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Colour sequences of a terminal (ECMA-48 §8.3.117, SGR). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the test is about control sequences
const COLOUR = /\u001b\[[\d;]*m/;

for (const { what, env, isColoured } of [
  { what: 'has colours where they are wanted', env: { FORCE_COLOR: '1' }, isColoured: true },
  { what: 'has none with NO_COLOR', env: { FORCE_COLOR: '1', NO_COLOR: '1' }, isColoured: false },
]) {
  it(`the log on a terminal is readable, and ${what}`, async (t) => {
    const installation = await newInstallation(t);
    const onTerminal = { NODE_OPTIONS: '--import=data:text/javascript,process.stdout.isTTY=true' };
    const args = ['serve', '--port', '0', '--admin-port', '0'];
    const program = installation.start(args, { env: { ...env, ...onTerminal } });
    await program.wrote(() => /INFO.*: .*serving/.exec(program.output.stdout) ?? undefined);
    assert.equal(COLOUR.test(program.output.stdout), isColoured);
    program.kill('SIGTERM');
    assert.equal((await program.ended).code, 0);
  });
}

it('the log on a terminal has one line for each request', async (t) => {
  const installation = await newInstallation(t);
  const onTerminal = {
    NODE_OPTIONS: '--import=data:text/javascript,process.stdout.isTTY=true',
    NO_COLOR: '1',
  };
  const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], { env: onTerminal });
  const address = /DELETE (\S+)\/plants\/1 /;
  const url = await program.wrote(() => address.exec(program.output.stdout)?.[1]);
  const begin = program.output.stdout.length;
  await fetch(`${url}/openapi.json`);
  await fetch(`${url}/plants`);
  const logged = (): string => program.output.stdout.slice(begin);
  const lines = await program.wrote(() => {
    const written = logged().trim().split('\n');
    return written.filter((line) => line.includes('answered')).length === 2 ? written : undefined;
  });
  assert.equal(lines.length, 2);
  const [first = '', second = ''] = lines;
  assert.match(first, /^\[.*\] INFO: answered .*"requestId":".+".*"operation":"openapi".*"status":200.*$/);
  assert.match(second, /^\[.*\] INFO: answered .*"status":401,"error":40100,.*$/);
  program.kill('SIGTERM');
  assert.equal((await program.ended).code, 0);
});

/** Sets the title of a terminal, clears its screen, and turns the direction of the text. */
const CONTROLS = '\u001b]0;title\u0007\u001b[2J\u202e';

it('the log on a terminal escapes what controls a terminal', async (t) => {
  const installation = await newInstallation(t);
  const folder = join(installation.folder, CONTROLS);
  const [cert, key] = ['pem', 'key'].map((ending) => join(folder, `first.${ending}`)) as [string, string];
  await cp(join(ROOT, 'test', 'support', 'certificates'), folder, { recursive: true });
  const program = installation.start(
    ['serve', '--port', '0', '--admin-port', '0', '--tls-cert', cert, '--tls-key', key],
    { env: { NODE_OPTIONS: '--import=data:text/javascript,process.stdout.isTTY=true', NO_COLOR: '1' } },
  );
  await program.wrote(() => /INFO.*: .*serving/.exec(program.output.stdout) ?? undefined);
  await rm(cert);
  program.kill('SIGHUP');
  await program.wrote(() => /ENOENT.*first\.pem/.exec(program.output.stdout) ?? undefined);
  program.kill('SIGTERM');
  const { code, stdout } = await program.ended;
  assert.equal(code, 0);
  assert.ok(stdout.includes(String.raw`\u001b]0;title\u0007\u001b[2J\u202e`), stdout);
  assert.doesNotMatch(stdout, /(?!\n)\p{Cc}|\u202e/u);
});

/** More lines than a terminal, a pipe and their readers hold. */
const REQUESTS = 3_000;

it('a terminal that is not read → requests and the stop go on', needsProgram('script'), async (t) => {
  const installation = await newInstallation(t);
  const [port, code] = [await freePort(), join(installation.folder, 'code')];
  const serve = `${process.execPath} ${ROOT}/bin/plant-store.js serve --port ${port} --admin-port 0`;
  const onTerminal = `${serve} & echo $! > pid; wait $!; echo $? > ${code}.partial; mv ${code}.partial ${code}`;
  const terminal = spawn('script', ['--quiet', '--flush', '--command', onTerminal, '/dev/null'], {
    cwd: installation.folder,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => terminal.kill('SIGKILL'));
  const url = `http://127.0.0.1:${port}/openapi.json`;
  await until(async () => (await fetch(url).catch(() => undefined))?.ok === true);
  for (let sent = 0; sent < REQUESTS; sent += 50)
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        const response = await fetch(url);
        await response.arrayBuffer();
        assert.equal(response.status, 200);
      }),
    );
  process.kill(Number(await readFile(join(installation.folder, 'pid'), 'utf8')), 'SIGTERM');
  await until(() => existsSync(code));
  assert.equal((await readFile(code, 'utf8')).trim(), '0');
});

it('npm run dev: a source changes → restarts', async (t) => {
  const installation = await newInstallation(t);
  for (const folder of ['bin', 'src'])
    await cp(join(ROOT, folder), join(installation.folder, folder), { recursive: true });
  await cp(join(ROOT, 'package.json'), join(installation.folder, 'package.json'));
  await symlink(join(ROOT, 'node_modules'), join(installation.folder, 'node_modules'));
  const [node, ...args] = manifest.scripts.dev.split(' ');
  assert.equal(node, 'node');
  const program = installation.start([], {
    env: { PORT: '0', ADMIN_PORT: '0' },
    wrap: () => [process.execPath, ...args],
  });
  const serving = (skip: number) =>
    program.wrote(() => program.log.filter(({ msg }) => msg === 'serving')[skip]);
  await serving(0);
  const change = () => appendFile(join(installation.folder, 'src', 'plant.ts'), '// changed\n');
  await change();
  // The process reports the files to watch while it starts, perhaps after the first change. Once one was
  // noticed there must be no other, which would end what it started.
  const changing = setInterval(change, 5_000);
  await program.logged(({ msg }) => msg === 'stopping').finally(() => clearInterval(changing));
  // On a slow machine a second change may be noticed too: then the second process stops, and a third one serves.
  let status = 0;
  for (let count = 1; status !== 200; count += 1) {
    const { adminUrl } = await serving(count);
    status = await fetch(`${adminUrl}/ready`).then(
      (response) => response.status,
      () => 0,
    );
  }
  assert.ok(
    program.log.some(({ msg }) => msg === 'stopped'),
    'the first was stopped properly',
  );
  assert.deepEqual(
    program.log.filter(({ level }) => Number(level) >= 50),
    [],
    'no errors',
  );
  program.kill('SIGTERM');
  await program.ended;
});
