import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { FORCED_EXIT_MS } from '../../../src/cli/commands/serve-command.ts';
import { newInstallation, TOGETHER } from '../../support/program.ts';

const ROOT = join(import.meta.dirname, '../../..');

/** Runs a command in the clone, in place of the shell. */
const inClone = (...command: readonly string[]): readonly string[] => [
  'sh',
  '-c',
  'cd "$0" && exec "$@"',
  ROOT,
  ...command,
];

describe('SIGTERM to npm or npx alone', TOGETHER, () => {
  for (const [name, start] of [
    ['npm start', ['npm', 'start', '--']],
    ['npx plant-store serve', ['npx', 'plant-store', 'serve']],
  ] as const) {
    it(`${name} → the service stops within its grace period, and no process is left`, async (t) => {
      const installation = await newInstallation(t);
      // The first flags follow the program, its file and the command.
      const wrap = (command: readonly string[]) => inClone(...start, ...command.slice(3));
      const service = await installation.serve({ env: { NODE_ENV: 'production' }, wrap });
      assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
      const signalled = performance.now();
      // Resolves when every process that has the output open has ended.
      await service.stop();
      assert.ok(performance.now() - signalled < FORCED_EXIT_MS);
      assert.equal(service.log.at(-1)?.msg, 'stopped');
      await assert.rejects(fetch(`${service.adminUrl}/live`));
    });
  }
});
