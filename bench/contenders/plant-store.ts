import { join } from 'node:path';
import { connectionOptions, loadConfig } from '../../src/config.ts';
import { toPlantRow } from '../../src/plant.ts';
import { openStore } from '../../src/store/open-engine.ts';
import type { Store } from '../../src/store/store.ts';
import { createTokenIn } from '../../test/support/tokens.ts';
import { examplePlants } from './example-plants.ts';
import { openFiller, ownerName, plantsOf } from './fill-store.ts';
import { startServerProcess } from './server-process.ts';
import type { RunningSubject, Subject } from './subject.ts';

export const MAIN = join(import.meta.dirname, '../../bin/plant-store.js');
export const OWNER = ownerName(0);

const ONE_COMMIT_A_REQUEST = join(import.meta.dirname, 'one-commit-a-request.ts');

/**
 * Plants to prepare for each second of a run with deletes. No run deletes plants that fast, so each delete
 * finds a plant.
 */
export const DELETES_A_SECOND = 80_000;
const WRITTEN_AT_ONCE = 5_000;

interface PlantStoreOptions {
  readonly folder: string;
  /** Database URL; by default a new SQLite file in the folder of the contender. */
  readonly databaseUrl?: string;
  /** Owners whose tokens the requests use in rotation; by default only OWNER. */
  readonly callers?: readonly string[];
  /** A module that the service preloads. */
  readonly preload?: string;
  /**
   * Fills the store; by default with the example plants. Resolves to the path of a file with tokens, or to
   * undefined if it creates no such file.
   */
  readonly fill?: (store: Store, databaseUrl: string) => Promise<string | undefined>;
}

/** Our service with its defaults: token checks, an fsync before every response to a write, a log line per request. */
export const plantStore: Subject = {
  name: 'plant-store',
  start: (folder) => startPlantStore({ folder }),
};

export function plantStoreOn(name: string, databaseUrl: string): Subject {
  return { name: `plant-store on ${name}`, start: (folder) => startPlantStore({ folder, databaseUrl }) };
}

/** Our service with one commit per write, to measure the speed without group commit. */
export const oneCommitARequest: Subject = {
  name: 'plant-store, one commit per request',
  start: (folder) => startPlantStore({ folder, preload: ONE_COMMIT_A_REQUEST }),
};

/** Starts our service on a store with a token and the data from `fill`. */
export async function startPlantStore(options: PlantStoreOptions): Promise<RunningSubject> {
  const { folder, databaseUrl = `sqlite:${join(folder, 'plants.db')}`, preload } = options;
  const { fill = fillWithExamples, callers = [OWNER] } = options;
  const store = await openBenchStore(databaseUrl);
  try {
    const { secret } = await createTokenIn(store, OWNER);
    const secretsFile = await fill(store, databaseUrl);
    const { stop, ...server } = await startServerProcess(
      [
        ...(preload === undefined ? [] : ['--import', preload]),
        ...[MAIN, 'serve', '--port', '0', '--admin-port', '0', '--database-url', databaseUrl],
      ],
      join(folder, 'log'),
    );
    return {
      ...server,
      headers: secretsFile === undefined ? { authorization: `Bearer ${secret}` } : {},
      secretsFile,
      targetOf: (target) => target,
      prepare: async ({ requests }, ids, seconds) => {
        if (!requests.some(({ method }) => method === 'DELETE')) return;
        await using filler = await openFiller(databaseUrl);
        await filler.addPlants(plantsOf(ids, DELETES_A_SECOND * seconds, callers));
      },
      close: async () => {
        try {
          await store.close();
        } finally {
          await stop();
        }
      },
    };
  } catch (error: unknown) {
    await store.close();
    throw error;
  }
}

/** Opens a store with the same options as the commands of plant-store, such as `token create`. */
export function openBenchStore(databaseUrl: string): Promise<Store> {
  return openStore(databaseUrl, {
    now: Date.now,
    onFatal: (error) => {
      throw error;
    },
    connections: connectionOptions(loadConfig({}, {})),
  });
}

/** Runs an action for each item. Many actions run at the same time, so that their writes share commits. */
export async function manyAtOnce<T>(all: Iterable<T>, work: (one: T) => Promise<unknown>): Promise<void> {
  let running: Promise<unknown>[] = [];
  for (const one of all) {
    running.push(work(one));
    if (running.length < WRITTEN_AT_ONCE) continue;
    await Promise.all(running);
    running = [];
  }
  await Promise.all(running);
}

async function fillWithExamples(store: Store): Promise<undefined> {
  await manyAtOnce(examplePlants(), ({ id, ...fields }) =>
    store.write({
      kind: 'createPlant',
      ...toPlantRow(OWNER, { ...fields, id: BigInt(id) }),
      idempotencyKey: null,
    }),
  );
}
