import assert from 'node:assert/strict';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { FORCED_EXIT_MS } from '../../src/cli/commands/serve-command.ts';
import { loadConfig } from '../../src/config.ts';
import { assertVariables, ROOT, read, run } from '../support/deploy-files.ts';
import { freshFolder } from '../support/engines.ts';
import { needsProgram } from '../support/needs.ts';

describe('plant-store.service', () => {
  const unit = read('deploy/plant-store.service');
  const PROGRAM = '/usr/local/bin/plant-store';
  const valuesOf = (key: string): string[] =>
    [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value = '']) => value);

  test('starts the executable, with a command that exists', async () => {
    assert.deepEqual(valuesOf('ExecStart'), [`${PROGRAM} serve`]);
    assert.match(unit, /^# {5}install -m 755 dist\/plant-store \/usr\/local\/bin\/plant-store$/m);
    const { stdout } = await run(process.execPath, [join(ROOT, 'bin/plant-store.js'), 'serve', '--help']);
    assert.match(stdout, /Usage: plant-store serve/);
  });

  test('variables → valid settings; the store is in a writable folder', () => {
    const environment = Object.fromEntries(valuesOf('Environment').map((pair) => pair.split(/=(.*)/s, 2)));
    assertVariables(environment);
    const { databaseUrl } = loadConfig({}, environment);
    assert.ok(databaseUrl.startsWith(`sqlite:/var/lib/${valuesOf('StateDirectory')[0]}/`), databaseUrl);
    assert.equal(environment.NODE_ENV, 'production');
  });

  test('removes privileges that the service does not need', () => {
    const expected = {
      DynamicUser: 'yes',
      NoNewPrivileges: 'yes',
      ProtectSystem: 'strict',
      ProtectHome: 'yes',
      PrivateTmp: 'yes',
      CapabilityBoundingSet: '',
    };
    for (const [key, value] of Object.entries(expected)) assert.deepEqual(valuesOf(key), [value], key);
    assert.deepEqual(valuesOf('MemoryDenyWriteExecute'), [], 'V8 could not start');
  });

  test('restarts on failure; TimeoutStopSec exceeds the shutdown limit', () => {
    assert.deepEqual(valuesOf('Restart'), ['on-failure']);
    assert.deepEqual(valuesOf('KillSignal'), ['SIGTERM']);
    assert.ok(Number(valuesOf('TimeoutStopSec')[0]) * 1_000 > FORCED_EXIT_MS);
  });

  test('restarts without a limit while the store is down', () => {
    assert.match(unit, /^\[Unit\]\n(?:[^[].*\n)*StartLimitIntervalSec=0$/m);
  });

  // systemd.special(7): services are ordered after time-sync.target, and do not pull it in.
  test('starts after the clock is synchronized, if a unit waits for that', () => {
    assert.ok(valuesOf('After').join(' ').split(' ').includes('time-sync.target'));
    assert.ok(!valuesOf('Wants').join(' ').split(' ').includes('time-sync.target'));
  });

  test('has sections of settings only', () => {
    const lines = unit.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    for (const line of lines) assert.match(line, /^(?:\[[A-Z][a-z]+\]|[A-Z][A-Za-z]+=.*)$/);
    assert.deepEqual(
      lines.filter((line) => line.startsWith('[')),
      ['[Unit]', '[Service]', '[Install]'],
    );
  });

  test('systemd accepts it', needsProgram('systemd-analyze'), async () => {
    const folder = await freshFolder();
    // systemd-analyze checks that the program exists, so the path is replaced.
    const program = join(folder, 'plant-store');
    await writeFile(program, '');
    await chmod(program, 0o755);
    const forPostgres = unit.replaceAll(/^#(?=LoadCredential=|Environment=DATABASE_URL_FILE=)/gm, '');
    assert.notEqual(forPostgres, unit);
    for (const [index, text] of [unit, forPostgres].entries()) {
      await mkdir(join(folder, String(index)));
      const file = join(folder, String(index), 'plant-store.service');
      await writeFile(file, text.replaceAll(PROGRAM, `"${program}"`));
      const { stderr } = await run('systemd-analyze', ['verify', '--man=no', file]);
      assert.equal(stderr, '');
    }
  });
});
