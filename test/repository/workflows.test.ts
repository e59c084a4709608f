import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import manifest from '../../package.json' with { type: 'json' };
import { listOf, mapOf, ROOT, read, readYaml, textOf, type YamlMap } from '../support/deploy-files.ts';

const FOLDER = '.github/workflows';
const workflows = readdirSync(join(ROOT, FOLDER)).map((file) => {
  const [workflow] = readYaml(join(FOLDER, file));
  assert.ok(workflow !== undefined, file);
  return { file, workflow, text: read(join(FOLDER, file)) };
});

function stepsOf(workflow: YamlMap): readonly YamlMap[] {
  return Object.values(mapOf(workflow.jobs)).flatMap((job) => listOf(mapOf(job).steps).map(mapOf));
}

describe('the workflows', () => {
  test('pin every action by its commit, with its version in a comment', () => {
    for (const { file, text, workflow } of workflows) {
      const used = stepsOf(workflow).flatMap(({ uses }) => (uses === undefined ? [] : [textOf(uses)]));
      assert.ok(used.length > 0, file);
      for (const action of used) {
        assert.match(action, /^actions\/[a-z-]+@[0-9a-f]{40}$/, file);
        assert.match(text, new RegExp(`${action} # v\\d+\\.\\d+\\.\\d+$`, 'm'));
      }
    }
  });

  test('have only the permissions that a job names, and a time limit for each job', () => {
    for (const { file, workflow } of workflows) {
      assert.deepEqual(workflow.permissions, { contents: 'read' }, file);
      for (const [name, job] of Object.entries(mapOf(workflow.jobs))) {
        assert.ok(Number(mapOf(job)['timeout-minutes']) > 0, `${file}: ${name}`);
        const writes = Object.keys(mapOf(mapOf(job).permissions ?? {}));
        assert.deepEqual(writes, name === 'draft' ? ['contents', 'id-token', 'attestations'] : [], name);
      }
    }
  });

  test('run scripts and files that exist', () => {
    const commands = workflows
      .flatMap(({ workflow }) => stepsOf(workflow))
      .flatMap(({ run }) => (run === undefined ? [] : [textOf(run)]));
    const all = commands.join('\n');
    const scripts = [...all.matchAll(/npm run (?:--silent )?([a-z:]+)/g)].map(([, name = '']) => name);
    assert.deepEqual([...new Set(scripts)].sort(), ['audit', 'build', 'build:executable', 'sbom']);
    for (const name of scripts) assert.ok(name in manifest.scripts, name);
    for (const file of ['.ci/run', 'deploy/Dockerfile']) {
      assert.ok(all.includes(file), file);
      assert.ok(existsSync(join(ROOT, file)), file);
    }
  });

  test('build what a release has, before it is drafted', () => {
    const release = workflows.find(({ file }) => file === 'release.yml')?.workflow;
    const jobs = mapOf(release?.jobs);
    const { needs } = mapOf(jobs.draft);
    assert.deepEqual(
      listOf(needs).toSorted(),
      Object.keys(jobs)
        .filter((name) => name !== 'draft')
        .toSorted(),
    );
    const rows = listOf(mapOf(mapOf(mapOf(jobs.executable).strategy).matrix).include).map(mapOf);
    for (const system of ['linux', 'macos', 'windows'])
      assert.ok(
        rows.some(({ name }) => textOf(name).startsWith(`plant-store-${system}-`)),
        system,
      );
  });
});
