import { messageOf } from '../../thrown-errors.ts';
import { LAST_USE_STEP_MS } from '../../token.ts';
import { type Row, toReplay } from '../rows.ts';
import { type LockKey, type Outcome, StoreUnavailable, type Write } from '../store.ts';
import type { Connections } from './connections.ts';
import { withoutCommit } from './errors.ts';
import {
  type Connection,
  type Creation,
  claimKeys,
  createNewPlants,
  createPlants,
  createTokens,
  deletePlants,
  findKeys,
  isKeyed,
  type KeyedCreation,
  nameOfKey,
  removeKeys,
  type Statement,
} from './statements.ts';
import { rollBack } from './transaction.ts';

type Deletion = Extract<Write, { kind: 'deletePlant' }>;
type TokenWrite = Exclude<Write, Creation | Deletion>;

interface Member {
  readonly write: Write;
  outcome: Outcome | undefined;
}

/**
 * Ways to execute a batch. `allNew` expects that no created plant and no idempotency key is stored: one is enough for the server to
 * reject the batch (23505). `perOwner`: each owner has a separate statement for creations and for deletions.
 */
export type BatchMode = 'allNew' | 'allOwners' | 'perOwner';

/**
 * Executes a batch of writes. One statement executes all creations, and another one all deletions, except in the mode `perOwner`.
 * Writes with the same lock key (`lockKeys`) are in the same statement, in their order; the order of others does not matter. To
 * prevent deadlocks, every batch locks rows in the same order: idempotency keys, created plants, deleted plants, tokens. Each of
 * these groups is sorted by key.
 */
export async function commitBatch(
  connections: Pick<Connections, 'use'>,
  batch: readonly Write[],
  mode: BatchMode,
): Promise<readonly Outcome[]> {
  const members = batch.map((write): Member => ({ write, outcome: undefined }));
  if (isOneStatement(members, mode))
    await connections.use((connection) => execute(connection, members, mode));
  else await inPipelinedTransaction(connections, members, mode);
  return members.map(settledOutcome);
}

function settledOutcome({ write, outcome }: Member): Outcome {
  if (outcome === undefined) throw new StoreUnavailable(`PostgreSQL returned no outcome for ${write.kind}`);
  return outcome;
}

/**
 * Returns a lock key for each row that a write changes. Creations of one plant may share a batch, and so may its
 * deletions: their statement changes the row once.
 */
export function lockKeys(write: Write): LockKey[] {
  switch (write.kind) {
    case 'createPlant': {
      const plant = { name: plantKey(write.owner, write.id), isShared: true };
      if (!isKeyed(write)) return [plant];
      return [plant, { name: `key ${nameOfKey(write)}`, isShared: false }];
    }
    case 'deletePlant':
      return [{ name: plantKey(write.owner, write.id), isShared: true }];
    case 'createToken':
    case 'revokeToken':
    case 'recordTokenUse':
      return [{ name: `token ${tokenId(write)}`, isShared: false }];
  }
}

function plantKey(owner: string, id: bigint | string): string {
  return `plant ${owner} ${id}`;
}

function tokenId(write: TokenWrite): string {
  return write.kind === 'createToken' ? write.token.id : write.id;
}

/** True if `execute` sends one statement, which the server runs as a transaction. */
function isOneStatement(members: readonly Member[], mode: BatchMode): boolean {
  const statements =
    partsOf(members.filter(isCreation), mode).length +
    partsOf(members.filter(isDeletion), mode).length +
    members.filter(isTokenWrite).length;
  return statements === 1 && !claimsKeys(members, mode);
}

/** True if a statement stores idempotency keys before another one creates their plants. */
function claimsKeys(members: readonly Member[], mode: BatchMode): boolean {
  return mode !== 'allNew' && members.some(hasKey);
}

// BEGIN is not prepared: if a pooler rejected a prepared one, the statements would run outside a transaction. Claims of
// keys wait for BEGIN: if it alone failed, a key would be stored without its plant. COMMIT waits for all statements.
async function inPipelinedTransaction(
  connections: Pick<Connections, 'use'>,
  members: readonly Member[],
  mode: BatchMode,
): Promise<void> {
  let isUncommitted = false;
  try {
    await connections.use(async (connection) => {
      const begun = connection.query({ text: 'BEGIN' }).catch((error: unknown) => {
        // The statements behind it may have run outside a transaction, so the outcome is unknown.
        throw new StoreUnavailable(`a transaction could not begin: ${messageOf(error)}`, { cause: error });
      });
      try {
        if (claimsKeys(members, mode)) await begun;
        await Promise.all([begun, execute(connection, members, mode)]);
      } catch (error: unknown) {
        isUncommitted = await begun.then(
          () => true,
          () => false,
        );
        return rollBack(connection, error);
      }
      await connection.query({ text: 'COMMIT' });
    });
  } catch (error: unknown) {
    // `use` must see the error of the server: it closes the connection on StoreUnavailable.
    throw isUncommitted ? withoutCommit(error) : error;
  }
}

async function execute(connection: Connection, members: readonly Member[], mode: BatchMode): Promise<void> {
  const keyed = claimsKeys(members, mode) ? members.filter(hasKey) : [];
  await Promise.all(partsOf(keyed, mode).map((part) => claim(connection, part, mode)));
  const claimed = keyed.filter(({ outcome }) => outcome === undefined);
  const open = members.filter(({ outcome }) => outcome === undefined);
  await Promise.all([
    ...partsOf(open.filter(isCreation), mode).map((part) => create(connection, part, mode)),
    ...partsOf(open.filter(isDeletion), mode).map((part) => remove(connection, part, mode)),
    ...sortedTokenWrites(open).map((member) => writeToken(connection, member)),
  ]);
  // A key that stays is a promise that its plant was created.
  const failed = claimed.filter(({ outcome }) => outcome !== 'created');
  await Promise.all(partsOf(failed, mode).map((part) => releaseKeys(connection, part, mode)));
}

const isCreation = (member: Member): member is Member & { write: Creation } =>
  member.write.kind === 'createPlant';
const hasKey = (member: Member): member is Member & { write: KeyedCreation } =>
  isCreation(member) && isKeyed(member.write);
const isDeletion = (member: Member): member is Member & { write: Deletion } =>
  member.write.kind === 'deletePlant';
const isTokenWrite = (member: Member): member is Member & { write: TokenWrite } =>
  !isCreation(member) && !isDeletion(member);

async function create(
  connection: Connection,
  members: readonly (Member & { write: Creation })[],
  mode: BatchMode,
): Promise<void> {
  const creations = members.map(({ write }) => write);
  if (mode === 'allNew') {
    await connection.query(createNewPlants(creations));
    for (const member of members) member.outcome = 'created';
  } else settle(members, await connection.query(createPlants(creations)), 'created', 'idTaken');
}

async function remove(
  connection: Connection,
  members: readonly (Member & { write: Deletion })[],
  mode: BatchMode,
): Promise<void> {
  const deleted = await connection.query(
    deletePlants(
      members.map(({ write }) => write),
      mode === 'perOwner',
    ),
  );
  settle(members, deleted, 'deleted', 'absent');
}

/** Groups the writes for statements: one group for all writes, or with `perOwner` one for each owner, sorted by owner. */
function partsOf<M extends Member & { write: Creation | Deletion }>(
  members: readonly M[],
  mode: BatchMode,
): readonly (readonly M[])[] {
  if (mode !== 'perOwner') return members.length === 0 ? [] : [members];
  const owners = [...Map.groupBy(members, ({ write }) => write.owner)];
  return owners.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, part]) => part);
}

function settle(
  members: readonly (Member & { write: Creation | Deletion })[],
  changed: readonly Row[],
  ifChanged: Outcome,
  otherwise: Outcome,
): void {
  // Builds no set of changed keys if the statement changed all rows, which is the usual case. Of several writes to one
  // plant, the first gets `ifChanged`; `keys.delete` returns false for later ones.
  const keys =
    changed.length === members.length
      ? undefined
      : new Set(changed.map(({ owner, id }) => plantKey(String(owner), String(id))));
  for (const member of members) {
    const { owner, id } = member.write;
    member.outcome = keys === undefined || keys.delete(plantKey(owner, id)) ? ifChanged : otherwise;
  }
}

/**
 * Stores the idempotency keys. If a key is already in use, sets the outcome of its creation to 'createdReplayed' or
 * 'keyReused'.
 */
async function claim(
  connection: Connection,
  members: readonly (Member & { write: KeyedCreation })[],
  mode: BatchMode,
): Promise<void> {
  const claimed = await connection.query(claimKeys(members.map(({ write }) => write)));
  if (claimed.length === members.length) return;
  const mine = new Set(claimed.map(nameOfRow));
  const used = members.filter(({ write }) => !mine.has(nameOfKey(write)));
  const found = await connection.query(
    findKeys(
      used.map(({ write }) => write),
      mode === 'perOwner',
    ),
  );
  const first = new Map(found.map((row) => [nameOfRow(row), row]));
  for (const member of used) {
    const row = first.get(nameOfKey(member.write));
    if (row === undefined)
      throw new StoreUnavailable('an idempotency key is in use, but its row was not found');
    member.outcome = toReplay(row, member.write);
  }
}

function nameOfRow({ owner, key }: Row): string {
  return nameOfKey({ owner: String(owner), idempotencyKey: String(key) });
}

/** Deletes the idempotency keys of failed creations, so that a retry with the same key is executed. */
async function releaseKeys(
  connection: Connection,
  members: readonly (Member & { write: KeyedCreation })[],
  mode: BatchMode,
): Promise<void> {
  await connection.query(
    removeKeys(
      members.map(({ write }) => write),
      mode === 'perOwner',
    ),
  );
}

function sortedTokenWrites(members: readonly Member[]): (Member & { write: TokenWrite })[] {
  return members
    .filter(isTokenWrite)
    .sort(({ write: a }, { write: b }) => (tokenId(a) < tokenId(b) ? -1 : 1));
}

async function writeToken(connection: Connection, member: Member & { write: TokenWrite }): Promise<void> {
  const rows = await connection.query(tokenStatement(member.write));
  member.outcome = rows.length > 0 ? 'done' : 'absent';
}

function tokenStatement(write: TokenWrite): Statement {
  switch (write.kind) {
    case 'createToken':
      return createTokens([write.token]);
    case 'revokeToken':
      return {
        name: 'revoke-token',
        text: 'UPDATE tokens SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 RETURNING id',
        values: [write.at, write.id],
      };
    case 'recordTokenUse':
      return {
        name: 'record-token-use',
        text: `UPDATE tokens SET last_used_at = $1::bigint
                WHERE id = $2 AND (last_used_at IS NULL OR abs($1::bigint - last_used_at) >= ${LAST_USE_STEP_MS}) RETURNING id`,
        values: [write.at, write.id],
      };
  }
}
