import { join } from 'node:path';
import { connectionOptions, loadConfig } from '../../src/config.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';
import { type ExamplePlant, examplePlants } from '../example-plants.ts';
import { createIds } from '../load/ids.ts';
import { type ServerProcess, startServerProcess } from '../server-process.ts';
import type { RunningSubject, Subject } from '../subject.ts';
import type { Ids } from '../workloads.ts';

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts');
const OWNER = 'bench';

/** More deletes a second than any run will reach, so that each finds a plant. */
const DELETES_A_SECOND = 80_000;
const FILLED_AT_ONCE = 5_000;

/** Our service as it is shipped: tokens checked, every answer behind an fsync, a log line for each request. */
export const plantStore: Subject = {
  name: 'plant-store',
  start: async (folder) => {
    const databaseUrl = `sqlite:${join(folder, 'plants.db')}`;
    const store = await openStore(databaseUrl, {
      now: Date.now,
      onFatal: fail,
      connections: connectionOptions(loadConfig({}, {})),
    });
    try {
      const token = await createToken(store);
      await fill(store, examplePlants());
      const server = await startServerProcess(
        [MAIN, 'serve', '--port', '0', '--admin-port', '0', '--database-url', databaseUrl],
        join(folder, 'log'),
      );
      return running(server, store, token);
    } catch (error: unknown) {
      await store.close();
      throw error;
    }
  },
};

function running(server: ServerProcess, store: Store, token: string): RunningSubject {
  return {
    url: server.url,
    pid: server.pid,
    headers: { authorization: `Bearer ${token}` },
    prepare: async ({ part }, ids, seconds) => {
      if (part === 'delete') await fill(store, plantsToDelete(ids, DELETES_A_SECOND * seconds));
    },
    close: async () => {
      await store.close();
      await server.stop();
    },
  };
}

async function createToken(store: Store): Promise<string> {
  const secret = mintSecret();
  const token = newToken(secret, OWNER, { scopes, expiresAt: null, name: 'bench' }, Date.now());
  await store.write({ kind: 'createToken', token });
  return secret;
}

/** Creates plants, many at once, so that they share their commits. */
async function fill(store: Store, plants: Iterable<ExamplePlant>): Promise<void> {
  let writes: Promise<unknown>[] = [];
  for (const { id, name, tag = null } of plants) {
    writes.push(
      store.write({ kind: 'createPlant', owner: OWNER, id: BigInt(id), name, tag, idempotency: null }),
    );
    if (writes.length < FILLED_AT_ONCE) continue;
    await Promise.all(writes);
    writes = [];
  }
  await Promise.all(writes);
}

function* plantsToDelete(ids: Ids, count: number): Generator<ExamplePlant> {
  const nextId = createIds(ids);
  for (let n = 0; n < count; n += 1) yield { id: nextId(), name: 'Black alder', tag: 'Alnus glutinosa' };
}

function fail(error: Error): void {
  throw error;
}
