import assert from 'node:assert/strict';
import { copyFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stringify } from 'yaml';
import { listOf, mapOf, ROOT, readYaml, run, textOf, type YamlMap } from '../../support/deploy-files.ts';
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { TOGETHER } from '../../support/program.ts';

const TESTS = 'alerts.test.yaml';

describe('alerting rules', { ...needsProgram('promtool'), ...TOGETHER }, () => {
  const [rules = {}] = readYaml('deploy/alerts.yaml');
  const [group] = listOf(rules.groups);
  const alerts = listOf(mapOf(group).rules).map(mapOf);

  /** Runs the unit tests on other rules. Resolves to whether they pass. */
  async function pass(changed: readonly YamlMap[]): Promise<boolean> {
    const folder = await freshFolder();
    await copyFile(join(ROOT, 'deploy', TESTS), join(folder, TESTS));
    const file = { groups: [{ ...mapOf(group), rules: changed }] };
    await writeFile(join(folder, 'alerts.yaml'), stringify(file));
    return run('promtool', ['test', 'rules', join(folder, TESTS)]).then(
      () => true,
      () => false,
    );
  }

  it('fire in the faults of their unit tests, and nowhere else', async () => {
    await run('promtool', ['check', 'rules', join(ROOT, 'deploy/alerts.yaml')]);
    await run('promtool', ['test', 'rules', join(ROOT, 'deploy', TESTS)]);
  });

  for (const alert of alerts) {
    const name = textOf(alert.alert);
    const others = alerts.filter((other) => other !== alert);

    it(`${name} fires never, or always → a unit test fails`, async () => {
      assert.equal(await pass([...others, { ...alert, expr: 'vector(0) > 1' }]), false);
      assert.equal(await pass([...others, { ...alert, expr: 'vector(1)', for: '0s' }]), false);
    });
  }
});
