import { readdirSync, readFileSync } from 'node:fs';
import { getAssetKeys, getRawAsset, isSea } from 'node:sea';
import { Worker } from 'node:worker_threads';
import manifest from '../package.json' with { type: 'json' };

/** Version of the program, from package.json. */
export const { version } = manifest;

/**
 * The folder of the files that the program reads at run time: `src` in a clone, `lib` in the package. The
 * executable contains these files as assets (docs/decisions/0018-one-bundle.md).
 */
const ROOT = new URL('./', import.meta.url);

export function readPackagedFile(path: string): Buffer {
  return isSea() ? Buffer.from(getRawAsset(path)) : readFileSync(new URL(path, ROOT));
}

/** Lists the names of the files in a packaged folder. The path `folder` must end with a slash. */
export function listPackagedFiles(folder: string): readonly string[] {
  if (!isSea()) return readdirSync(new URL(folder, ROOT));
  const inFolder = getAssetKeys().filter((key) => key.startsWith(folder));
  return inFolder.map((key) => key.slice(folder.length));
}

/** Starts a worker thread. `module` is a path in `src` without suffix: `store/sqlite/writer-thread`. */
export function startThread(module: string, workerData: unknown): Worker {
  if (isSea()) return new Worker(readPackagedFile(`${module}.js`).toString(), { eval: true, workerData });
  const suffix = import.meta.url.endsWith('.ts') ? '.ts' : '.js';
  return new Worker(new URL(`${module}${suffix}`, ROOT), { workerData });
}
