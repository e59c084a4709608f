import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { stringify } from 'yaml';
import { listOf, mapOf, ROOT, readYaml, run, textOf, type YamlMap } from '../../support/deploy-files.ts';
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';

const TESTS = 'alerts.test.yaml';

describe('alerting rules', needsProgram('promtool'), () => {
  const [rules = {}] = readYaml('deploy/alerts.yaml');
  const [group] = listOf(rules.groups);
  const alerts = listOf(mapOf(group).rules).map(mapOf);

  /** Runs the unit tests with these fields in each alert. Resolves to the alerts whose tests fail. */
  async function failing(fields: YamlMap): Promise<ReadonlySet<string>> {
    const folder = await freshFolder();
    await copyFile(join(ROOT, 'deploy', TESTS), join(folder, TESTS));
    const changed = alerts.map((alert) => ({ ...alert, ...fields }));
    const file = { groups: [{ ...mapOf(group), rules: changed }] };
    await writeFile(join(folder, 'alerts.yaml'), stringify(file));
    const { stderr } = spawnSync('promtool', ['test', 'rules', join(folder, TESTS)], { encoding: 'utf8' });
    return new Set(Array.from(stderr.matchAll(/^ *alertname: (\w+),/gm), ([, name = '']) => name));
  }

  it('fire in the faults of their unit tests, and nowhere else', async () => {
    await run('promtool', ['check', 'rules', join(ROOT, 'deploy/alerts.yaml')]);
    await run('promtool', ['test', 'rules', join(ROOT, 'deploy', TESTS)]);
  });

  for (const [title, fields] of [
    ['never', { expr: 'vector(0) > 1' }],
    ['always', { expr: 'vector(1)', for: '0s' }],
  ] as const)
    it(`an alert fires ${title} → a unit test of it fails`, async () => {
      const names = alerts.map(({ alert }) => textOf(alert));
      assert.ok(names.length > 0);
      assert.deepEqual(await failing(fields), new Set(names));
    });
});
