import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { limitedFiles } from '../../support/faults/disk-limits.ts';
import { newInstallation, type ProgramOptions, TOGETHER } from '../../support/program.ts';

const EXAMPLE = fileURLToPath(new URL('../../../examples/plants.ndjson', import.meta.url));

function lines(count: number, first = 1): string {
  return Array.from(
    { length: count },
    (_, index) => `{"id":${first + index},"name":"plant ${first + index}"}\n`,
  ).join('');
}

describe('stdout cannot be written', TOGETHER, () => {
  for (const command of [['openapi'], ['token', 'list'], ['export', 'alice']]) {
    it(`${command.join(' ')}: reader closed the pipe → ends silently`, async (t) => {
      const installation = await newInstallation(t);
      await installation.run(['import', 'alice', EXAMPLE]);
      const { stderr } = await installation.runProcess(command, {
        wrap: (program) => ['sh', '-c', '"$@" | :', 'sh', ...program],
      });
      assert.match(stderr, /^(?:630 plants of alice exported\n)?$/);
    });
  }

  it('import with an invalid line: reader closed the pipe → still reports the line', async (t) => {
    const { folder, runProcess } = await newInstallation(t);
    await writeFile(join(folder, 'plants.ndjson'), '{bad\n');
    const { stderr } = await runProcess(['import', 'alice', 'plants.ndjson'], {
      wrap: (program) => ['sh', '-c', '"$@" | :', 'sh', ...program],
    });
    assert.match(
      stderr,
      /^line 1: .*\n(?:plant-store: the result .*\n)?plant-store: 1 invalid line skipped; .*\n$/m,
    );
  });

  // Only Linux has /dev/full.
  if (process.platform === 'linux') {
    const full = {
      env: { LOG_LEVEL: 'silent' },
      wrap: (program: readonly string[]) => ['sh', '-c', 'exec "$@" > /dev/full', 'sh', ...program],
    };
    const fault = 'plant-store: standard output cannot be written: ENOSPC: no space left on device, write\n';

    for (const command of [['openapi'], ['export', 'alice']]) {
      it(`${command.join(' ')}: disk full → fails with one line`, async (t) => {
        const installation = await newInstallation(t);
        await installation.run(['import', 'alice', EXAMPLE]);
        const { code, stderr } = await installation.runProcess(command, full);
        assert.deepEqual({ code, stderr }, { code: 1, stderr: fault });
      });
    }

    for (const [command, result] of [
      [['import', 'alice', EXAMPLE], '630 plants of alice created'],
      [['migrate', '--database-url', 'sqlite:new.db'], 'applied 0001-plants-and-tokens.sql; applied '],
      [['copy', 'sqlite:full.db', 'sqlite:new.db'], 'copied and verified: 1 plant (checksum '],
    ] as const)
      it(`${command[0]}: disk full → fails, and standard error has the result`, async (t) => {
        const installation = await newInstallation(t);
        const plants = join(installation.folder, 'one.ndjson');
        await writeFile(plants, lines(1));
        await installation.run(['import', 'alice', plants, '--database-url', 'sqlite:full.db']);
        const { code, stderr } = await installation.runProcess(command, full);
        assert.equal(code, 1);
        assert.ok(stderr.includes(fault), stderr);
        assert.ok(stderr.includes(`plant-store: the result could not be printed: ${result}`), stderr);
      });

    it('token create: disk full → fails, and the token is revoked', async (t) => {
      const installation = await newInstallation(t);
      await installation.run(['migrate']);
      const { code, stderr } = await installation.runProcess(['token', 'create', 'alice'], full);
      const revoked =
        'plant-store: the token could not be printed, so it was revoked; run the command again\n';
      const lines = stderr.split(/(?<=\n)/);
      const messages = lines.filter((line) => !line.startsWith('{'));
      assert.deepEqual({ code, messages }, { code: 1, messages: [fault, revoked] });
      // No log level hides what is audited.
      const audits = lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line).audit);
      assert.deepEqual(audits, ['tokenCreated', 'tokenRevoked']);
      const { stdout } = await installation.run(['token', 'list', '--json']);
      assert.deepEqual(
        JSON.parse(stdout).map(({ state }: { state: string }) => state),
        ['revoked'],
      );
    });
  }
});

describe('standard error cannot be written, so that a message is lost', TOGETHER, () => {
  /** Keeps all of the file `audit.log` but its last bytes for earlier lines. */
  const ALMOST_FULL = 'head -c 1048566 /dev/zero > audit.log; exec "$@" 2>> audit.log';

  for (const [what, wrap] of [
    ['disk full', (command) => ['sh', '-c', 'exec "$@" 2> /dev/full', 'sh', ...command]],
    [
      'a part of the line fits into the file',
      (command) => limitedFiles(['sh', '-c', ALMOST_FULL, 'sh', ...command], 1_024),
    ],
  ] as const satisfies readonly (readonly [string, ProgramOptions['wrap']])[]) {
    const options = { skip: process.platform !== 'linux' && 'only Linux has /dev/full' };

    it(`token create: ${what} → fails, and prints the token`, options, async (t) => {
      const { run, runProcess } = await newInstallation(t);
      await run(['migrate']);
      const { code, stdout } = await runProcess(['token', 'create', 'alice'], { wrap });
      assert.equal(code, 1);
      assert.match(stdout, /^plt_\w{49}\n$/);
    });

    it(`token revoke: ${what} → fails, and says what it revoked`, options, async (t) => {
      const { runProcess, token } = await newInstallation(t);
      const { code, stdout } = await runProcess(['token', 'revoke', await token()], { wrap });
      assert.deepEqual([code, stdout.split(' ')[0]], [1, 'revoked']);
    });

    for (const command of [
      ['backup', 'copy.db'],
      ['export', 'alice', 'plants.ndjson'],
    ])
      it(`${command[0]}: ${what} → fails, and writes the file`, options, async (t) => {
        const { folder, run, runProcess } = await newInstallation(t);
        await run(['migrate']);
        const { code } = await runProcess(command, { wrap });
        assert.deepEqual([code, existsSync(join(folder, command.at(-1) ?? ''))], [1, true]);
      });
  }
});

describe('output of a command', TOGETHER, () => {
  for (const { command, kibibytes } of [
    { command: ['openapi'], kibibytes: 16 },
    { command: ['export', 'alice'], kibibytes: 64 },
  ])
    it(`${command.join(' ')}: only a part of the output fits into the file → fails`, async (t) => {
      const { folder, run, runProcess } = await newInstallation(t);
      const file = join(folder, 'plants.ndjson');
      await writeFile(file, lines(2_200));
      await run(['import', 'alice', file]);
      const limited = (program: readonly string[]) => ['bash', '-c', '"$@" > out', 'bash', ...program];
      const wrap = (program: readonly string[]) => limitedFiles(limited(program), kibibytes);
      const { code, stderr } = await runProcess(command, { wrap });
      assert.equal(code, 1);
      assert.match(stderr, /^plant-store: standard output cannot be written: EFBIG: .*\n$/);
    });

  it('export: no space for the file → names it and the reason, and leaves no file', async (t) => {
    const { folder, run, runProcess } = await newInstallation(t);
    const plants = join(folder, 'plants.ndjson');
    await writeFile(plants, lines(2_200));
    await run(['import', 'alice', plants]);
    const file = join(folder, 'out.ndjson');
    const { code, stderr } = await runProcess(['export', 'alice', file], {
      wrap: (command) => limitedFiles(command, 64),
    });
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: cannot write .*out\.ndjson: .*file size limit.*\n$/);
    assert.deepEqual([existsSync(file), existsSync(`${file}.partial`)], [false, false]);
  });

  it('import: standard input is a folder → fails', async (t) => {
    const { folder, runProcess } = await newInstallation(t);
    const { code, stderr } = await runProcess(['import', 'alice'], {
      wrap: (command) => ['bash', '-c', `"$@" < "$0"`, folder, ...command],
    });
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: cannot read standard input: it is a folder\n$/);
  });

  it('export: reader closes the pipe early → ends silently', async (t) => {
    const { folder, run, runProcess } = await newInstallation(t);
    const file = join(folder, 'plants.ndjson');
    await writeFile(file, lines(50_000));
    await run(['import', 'alice', file]);
    const toHead = (command: readonly string[]) => ['bash', '-c', '"$@" | head -1', 'bash', ...command];
    const { stdout, stderr } = await runProcess(['export', 'alice'], { wrap: toHead });
    assert.deepEqual({ stdout, stderr }, { stdout: lines(1), stderr: '' });
  });

  it('backup: no space for the copy → says that it cannot be written and leaves no file', async (t) => {
    const installation = await newInstallation(t);
    const plants = join(installation.folder, 'plants.ndjson');
    await writeFile(plants, lines(20_000));
    assert.equal((await installation.run(['import', 'alice', plants])).code, 0);
    const file = join(installation.folder, 'backup.db');
    const { code, stderr } = await installation.runProcess(['backup', file], {
      wrap: (one) => limitedFiles(one),
    });
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: the store cannot be copied to .*backup\.db\.partial: .*\n$/);
    assert.deepEqual([existsSync(file), existsSync(`${file}.partial`)], [false, false]);
  });
});
