import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import type { PlantRow } from '../../plant.ts';
import {
  type Bulk,
  type Contents,
  type Filling,
  LeftInLog,
  type OnConflict,
  StoreNotEmpty,
} from '../bulk-store.ts';
import { CHARACTERS_IN_PAGE, charactersIn, ROWS_IN_PAGE, readPlantRow, toKeyRow, toToken } from '../rows.ts';
import { type LogLeft, NothingStored, StatementRejected, StoreDamaged, StoreUnavailable } from '../store.ts';
import {
  CHARACTERS_BETWEEN_CHECKPOINTS,
  inLongTransaction,
  inTransaction,
  openForWriting,
} from './connection.ts';
import {
  isForbidden,
  isFromSqlite,
  notOpened,
  provesDamage,
  reasonOf,
  severityOf,
  storeFailed,
} from './errors.ts';
import { checkpoint, closeStore } from './files/close-store.ts';
import { describeMoved, rememberFile, watchFileIdentity } from './files/file-identity.ts';
import { openLongReading } from './files/long-reading.ts';
import { isServed } from './files/service-lock.ts';
import { inspectSqlite } from './integrity.ts';
import { SELECT_PLANTS } from './large-plants.ts';
import { isEmpty } from './migrate.ts';
import { rejectChangedSchema } from './schema-faults.ts';
import { prepareDeletePlant, prepareInsertPlant, prepareInsertToken } from './statements.ts';

/** Characters of written plants after which a checkpoint runs: fewer checkpoints than in the service, but a longer log. */
const BULK_CHARACTERS_BETWEEN_CHECKPOINTS = 4 * CHARACTERS_BETWEEN_CHECKPOINTS;

/**
 * Opens an embedded store for bulk commands such as import, without migrating it. Rejects with StoreNotOpened
 * if the file cannot be opened.
 */
export async function openSqliteBulk(file: string, onLogLeft?: (left: LogLeft) => void): Promise<Bulk> {
  const { db, read, close } = openOrExplain(file, openLongReading);
  const isAt = rememberFile(file);
  let writing: Writing | undefined;

  /**
   * Opens the writing connection only at the first write. This connection changes the file's journal mode, so
   * reads must not open it.
   */
  function writer(): Writing {
    if (writing !== undefined) return writing;
    if (!isAt(file)) throw storeFailed(file, describeMoved(file));
    rejectChangedSchema(db, file);
    writing = createWriting(openOrExplain(file, openForWriting), file);
    return writing;
  }

  return {
    savePlants: (plants, onConflict) => answering(file, async () => writer().savePlants(plants, onConflict)),
    fill: (work) => answering(file, () => writer().fill(work)),
    read: (_parts, work) =>
      answering(file, () =>
        read(async () => {
          db.exec('BEGIN');
          try {
            return await work(contentsOf(db, file));
          } finally {
            if (db.isTransaction) db.exec('ROLLBACK');
          }
        }),
      ),
    inspect: () => answering(file, () => read(() => inspectSqlite(db, file))),
    isServed: async () => isServed(file),
    close: async () => {
      close();
      const left = writing?.close();
      if (left !== undefined) onLogLeft?.(left);
    },
  };
}

function openOrExplain<T>(file: string, open: (file: string) => T): T {
  try {
    return open(file);
  } catch (error: unknown) {
    throw notOpened(file, error);
  }
}

async function answering<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error: unknown) {
    throw toStoreError(file, error);
  }
}

/** Converts an error of SQLite to an error of `store.ts` that names the file. Returns other errors unchanged. */
function toStoreError(file: string, error: unknown): unknown {
  if (!isFromSqlite(error)) return error;
  if (provesDamage(error)) {
    const remedy = 'run `plant-store check`, and restore a backup';
    return new StoreDamaged(`the store ${file} is damaged: ${reasonOf(error)}; ${remedy}`, { cause: error });
  }
  const severity = severityOf(error);
  if (severity === 'rejected')
    return new StatementRejected(`the store ${file} rejects it: ${reasonOf(error)}`, { cause: error });
  const message = isForbidden(error)
    ? notOpened(file, error).message
    : `the store ${file} failed: ${reasonOf(error)}`;
  const Failure = severity === 'transient' ? NothingStored : StoreUnavailable;
  return new Failure(message, { cause: error });
}

// Converts errors here too: `copy` reads one store while it writes another, and the message names the right one.
function contentsOf(db: DatabaseSync, file: string): Contents {
  async function* pages<T extends object>(
    sql: string,
    toRow: (row: Record<string, SQLOutputValue>) => T,
    ...values: string[]
  ): AsyncGenerator<readonly T[]> {
    let page: T[] = [];
    let characters = 0;
    for (const row of rows(sql, values)) {
      page.push(toRow(row));
      characters += charactersIn(row);
      if (page.length < ROWS_IN_PAGE && characters < CHARACTERS_IN_PAGE) continue;
      yield page;
      page = [];
      characters = 0;
      // SQLite never waits: without this pause no signal would be handled.
      await setImmediate();
    }
    if (page.length > 0) yield page;
  }

  function* rows(sql: string, values: readonly string[]): Generator<Record<string, SQLOutputValue>> {
    try {
      const statement = db.prepare(sql);
      statement.setReadBigInts(true);
      yield* statement.iterate(...values);
    } catch (error: unknown) {
      throw toStoreError(file, error);
    }
  }

  return {
    countPlants: async (owner) => {
      const [where, values] = owner === undefined ? ['', []] : [' WHERE owner = ?', [owner]];
      const [row] = rows(`SELECT count(*) AS count FROM plants${where}`, values);
      return Number(row?.count);
    },
    plants: (owner) =>
      owner === undefined
        ? pages(`${SELECT_PLANTS} ORDER BY owner, id`, readPlantRow)
        : pages(`${SELECT_PLANTS} WHERE owner = ? ORDER BY id`, readPlantRow, owner),
    tokens: () => pages('SELECT * FROM tokens ORDER BY created_at, id', toToken),
    keys: () => pages('SELECT * FROM idempotency_keys', toKeyRow),
  };
}

interface Writing {
  savePlants(plants: readonly PlantRow[], onConflict: OnConflict): readonly number[];
  fill<T>(work: (filling: Filling) => Promise<T>): Promise<T>;
  close(): LogLeft | undefined;
}

function createWriting(db: DatabaseSync, file: string): Writing {
  const insertPlant = prepareInsertPlant(db);
  const insertToken = prepareInsertToken(db);
  const deletePlant = prepareDeletePlant(db);
  const insertKey = db.prepare(
    'INSERT INTO idempotency_keys (owner, key, digest, outcome, first_used_at) VALUES (?, ?, ?, ?, ?)',
  );
  const files = watchFileIdentity(file, 0);
  let characters = 0;

  function rejectIfMoved(): void {
    const reason = files.whyMoved();
    if (reason !== undefined) throw storeFailed(file, reason);
  }

  function save(plant: PlantRow, onConflict: OnConflict): boolean {
    characters += charactersIn(plant);
    if (insertPlant(plant)) return true;
    if (onConflict === 'replace') {
      deletePlant(plant.owner, plant.id);
      insertPlant(plant);
    }
    return false;
  }

  function savePlants(plants: readonly PlantRow[], onConflict: OnConflict): readonly number[] {
    rejectIfMoved();
    const taken = inTransaction(
      db,
      () => plants.flatMap((plant, place) => (save(plant, onConflict) ? [] : [place])),
      (places) => (onConflict === 'fail' && places.length > 0 ? 'ROLLBACK' : 'COMMIT'),
    );
    rejectIfMoved();
    if (characters >= BULK_CHARACTERS_BETWEEN_CHECKPOINTS) tryCheckpoint();
    return taken;
  }

  // Ignores a transient error, such as a full disk: the plants are committed, and the next checkpoint repeats the work.
  // Returns true if the file holds all of the log.
  function tryCheckpoint(): boolean {
    characters = 0;
    try {
      return checkpoint(db, files);
    } catch (error: unknown) {
      if (severityOf(error) === 'fatal') throw error;
      return false;
    }
  }

  async function fill<T>(work: (filling: Filling) => Promise<T>): Promise<T> {
    rejectIfMoved();
    const result = await inLongTransaction(db, () => {
      if (!isEmpty(db)) throw new StoreNotEmpty('the store is not empty');
      return work(filling());
    });
    rejectIfMoved();
    if (!tryCheckpoint())
      throw new LeftInLog(
        `everything is in the store ${file}, but a part only in its log: do not move it without ${file}-wal. Make room on the disk and end other programs that use the store; then run \`plant-store migrate\` on it until ${file}-wal is gone`,
      );
    return result;
  }

  // Converts errors here, since `copy` adds rows while it reads another store.
  function addEach<T>(rows: readonly T[], add: (row: T) => unknown): Promise<void> {
    return answering(file, async () => {
      for (const row of rows) add(row);
    });
  }

  function filling(): Filling {
    return {
      ...contentsOf(db, file),
      addPlants: (plants) => addEach(plants, insertPlant),
      addTokens: (tokens) => addEach(tokens, insertToken),
      addKeys: (keys) =>
        addEach(keys, ({ owner, key, digest, outcome, firstUsedAt }) =>
          insertKey.run(owner, key, digest, outcome, firstUsedAt),
        ),
    };
  }

  return { savePlants, fill, close: () => closeStore(db, files) };
}
