import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

/** A kind of store that every suite runs on. */
export interface TestEngine {
  readonly name: string;
  /** The URL of a new, empty store, which goes away after the test. */
  freshUrl(t: Pick<TestContext, 'after'>): Promise<string>;
}

export const engines: readonly TestEngine[] = [
  {
    name: 'sqlite',
    freshUrl: async () => `sqlite:${join(await freshFolder(), 'plants.db')}`,
  },
];

const folders = new Set<string>();

process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A new folder, which goes away with the process: not after the test, when a service may still close its store in it. */
export async function freshFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  folders.add(folder);
  return folder;
}
