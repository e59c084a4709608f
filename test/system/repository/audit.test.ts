import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { freshFolder } from '../../support/engines.ts';
import { needs } from '../../support/needs.ts';
import { PATIENCE_MS } from '../../support/patience.ts';

const PROJECT = fileURLToPath(new URL('../../..', import.meta.url));

interface AuditReport {
  readonly vulnerabilities: Readonly<Record<string, { readonly severity: string }>>;
}

const report = audit(PROJECT, '--omit=dev');
const options = needs('an npm registry that answers `npm audit`', report !== undefined);

test('npm audit of the packages that run → no known vulnerabilities', options, () => {
  assert.deepEqual(report?.vulnerabilities, {});
});

test('npm audit of a vulnerable package → reported', options, async () => {
  const folder = await freshFolder();
  const dependencies = { minimist: '0.0.8' };
  const packages = { '': { dependencies }, 'node_modules/minimist': { version: '0.0.8' } };
  await writeFile(join(folder, 'package.json'), JSON.stringify({ dependencies }));
  await writeFile(
    join(folder, 'package-lock.json'),
    JSON.stringify({ lockfileVersion: 3, requires: true, packages }),
  );
  assert.deepEqual(Object.keys(audit(folder)?.vulnerabilities ?? {}), ['minimist']);
});

/** Returns undefined if the registry gives no report. */
function audit(cwd: string, ...flags: readonly string[]): AuditReport | undefined {
  const { stdout } = spawnSync('npm', ['audit', '--json', ...flags], {
    cwd,
    encoding: 'utf8',
    timeout: PATIENCE_MS,
  });
  const answer: unknown = stdout === '' ? undefined : JSON.parse(stdout);
  return isReport(answer) ? answer : undefined;
}

function isReport(answer: unknown): answer is AuditReport {
  return typeof answer === 'object' && answer !== null && 'vulnerabilities' in answer;
}
