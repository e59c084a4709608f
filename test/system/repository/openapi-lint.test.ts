import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { operations } from '../../../src/http/app.ts';
import { renderOpenApi } from '../../../src/http/openapi.ts';
import { freshFolder } from '../../support/engines.ts';

test('redocly, strict recommended rules, with and without a base path → no errors or warnings', async () => {
  const folder = await freshFolder();
  for (const basePath of ['', '/v1/greenhouse']) {
    const file = join(folder, `openapi${basePath.replaceAll('/', '-')}.json`);
    await writeFile(file, renderOpenApi(operations, basePath));
    const { problems, totals } = JSON.parse(await lint(file, folder));
    assert.deepEqual(problems, []);
    assert.deepEqual(totals, { errors: 0, warnings: 0, ignored: 0 });
  }
});

/** Runs redocly with the Node that runs the tests; resolves to its report. */
async function lint(file: string, cwd: string): Promise<string> {
  const manifest = createRequire(import.meta.url).resolve('@redocly/cli/package.json');
  const program = join(dirname(manifest), 'bin', 'cli.js');
  const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' };
  const options = ['lint', '--extends=recommended-strict', '--format=json', file];
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [program, ...options],
      { cwd, env, timeout: 60_000 },
      (error, stdout, stderr) => {
        if (stdout.startsWith('{')) resolve(stdout);
        else reject(new Error(`redocly gave no report: ${stderr}`, { cause: error }));
      },
    );
  });
}
