import { writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { ROOT, run } from './deploy-files.ts';
import type { Installation } from './program.ts';

/**
 * Runs a shell script of the docs in the folder of an installation, with the command `plant-store` and the variable `DATABASE_URL`.
 * Resolves to its stdout. Rejects if it fails.
 */
export async function runScript(store: Installation, script: string): Promise<string> {
  const command = `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, 'bin/plant-store.js')}" "$@"\n`;
  await writeFile(join(store.folder, 'plant-store'), command, { mode: 0o755 });
  const { stdout } = await run('sh', ['-c', script], {
    cwd: store.folder,
    env: {
      ...process.env,
      PATH: [store.folder, process.env.PATH].join(delimiter),
      DATABASE_URL: store.databaseUrl,
    },
  });
  return stdout;
}
