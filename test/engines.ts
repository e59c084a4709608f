import { mkdtemp, rm } from 'node:fs/promises';
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
    freshUrl: async (t) => `sqlite:${join(await freshFolder(t), 'plants.db')}`,
  },
];

/** A new folder, which goes away after the test. */
export async function freshFolder(t: Pick<TestContext, 'after'>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'plant-store-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
