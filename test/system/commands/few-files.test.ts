import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newInstallation } from '../../support/program.ts';

test('check with too few file descriptors → an error, not a fault of the store', async (t) => {
  const installation = await newInstallation(t);
  await installation.token('alice');
  const codes = new Set<number | null>();
  // Each of these limits stops the check at another place, or lets it pass.
  for (const limit of [24, 25, 26, 27, 28, 40]) {
    const wrap = (command: readonly string[]): readonly string[] => [
      ...['bash', '-c', `ulimit -n ${limit} && exec "$@"`, 'bash'],
      ...command,
    ];
    const command = installation.start(['check'], { wrap });
    const { code } = await command.ended;
    const { stdout, stderr } = command.output;
    codes.add(code);
    assert.doesNotMatch(`${stdout}${stderr}`, /fault|make a copy/, `limit ${limit}`);
    if (code !== 0) assert.match(stderr, /EMFILE|SQLite code 14/, `limit ${limit}`);
  }
  assert.deepEqual([...codes].toSorted(), [0, 1]);
});
