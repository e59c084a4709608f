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
 * Executes a batch of writes. One statement executes all creations, and another one all deletions. With `perOwner`,
 * each owner has a separate statement for creations and for deletions. Writes with the same lock key (`lockKeys`) are in
 * the same statement, in their order; the order of others does not matter. To prevent deadlocks, every batch locks rows
 * in the same order: idempotency keys, created plants, deleted plants, tokens. Each of these groups is sorted by key.
 */
export async function commitBatch(
  connections: Pick<Connections, 'use'>,
  batch: readonly Write[],
  perOwner: boolean,
): Promise<readonly Outcome[]> {
  const members = batch.map((write): Member => ({ write, outcome: undefined }));
  if (isOneStatement(members, perOwner))
    await connections.use((connection) => execute(connection, members, perOwner));
  else await inPipelinedTransaction(connections, members, perOwner);
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

function isOneStatement(members: readonly Member[], perOwner: boolean): boolean {
  if (members.some(hasKey)) return false;
  if (members.length === 1) return true;
  if (members.every(isDeletion)) return partsOf(members, perOwner).length === 1;
  if (members.every(isCreation)) return partsOf(members, perOwner).length === 1;
  return false;
}

// BEGIN is not prepared: if a pooler rejected a prepared one, the statements would run outside a transaction. Idempotency
// keys wait for BEGIN: if it alone failed, a key would be stored without its plant. COMMIT waits for all statements.
async function inPipelinedTransaction(
  connections: Pick<Connections, 'use'>,
  members: readonly Member[],
  perOwner: boolean,
): Promise<void> {
  let isUncommitted = false;
  try {
    await connections.use(async (connection) => {
      const begun = connection.query({ text: 'BEGIN' }).catch((error: unknown) => {
        // The statements behind it may have run outside a transaction, so the outcome is unknown.
        throw new StoreUnavailable(`a transaction could not begin: ${messageOf(error)}`, { cause: error });
      });
      try {
        if (members.some(hasKey)) await begun;
        await Promise.all([begun, execute(connection, members, perOwner)]);
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

async function execute(connection: Connection, members: readonly Member[], perOwner: boolean): Promise<void> {
  const keyed = members.filter(hasKey);
  await Promise.all(partsOf(keyed, perOwner).map((part) => claim(connection, part, perOwner)));
  const claimed = keyed.filter(({ outcome }) => outcome === undefined);
  const open = members.filter(({ outcome }) => outcome === undefined);
  await Promise.all([
    ...partsOf(open.filter(isCreation), perOwner).map((part) => create(connection, part)),
    ...partsOf(open.filter(isDeletion), perOwner).map((part) => remove(connection, part, perOwner)),
    ...sortedTokenWrites(open).map((member) => writeToken(connection, member)),
  ]);
  // A key that stays is a promise that its plant was created.
  const failed = claimed.filter(({ outcome }) => outcome !== 'created');
  await Promise.all(partsOf(failed, perOwner).map((part) => releaseKeys(connection, part, perOwner)));
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
): Promise<void> {
  const created = await connection.query(createPlants(members.map(({ write }) => write)));
  settle(members, created, 'created', 'idTaken');
}

async function remove(
  connection: Connection,
  members: readonly (Member & { write: Deletion })[],
  ofOneOwner: boolean,
): Promise<void> {
  const deleted = await connection.query(
    deletePlants(
      members.map(({ write }) => write),
      ofOneOwner,
    ),
  );
  settle(members, deleted, 'deleted', 'absent');
}

/** Groups the writes for statements: one group for all writes, or one for each owner, sorted by owner. */
function partsOf<M extends Member & { write: Creation | Deletion }>(
  members: readonly M[],
  perOwner: boolean,
): readonly (readonly M[])[] {
  if (!perOwner) return members.length === 0 ? [] : [members];
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
  ofOneOwner: boolean,
): Promise<void> {
  const claimed = await connection.query(claimKeys(members.map(({ write }) => write)));
  if (claimed.length === members.length) return;
  const mine = new Set(claimed.map(nameOfRow));
  const used = members.filter(({ write }) => !mine.has(nameOfKey(write)));
  const found = await connection.query(
    findKeys(
      used.map(({ write }) => write),
      ofOneOwner,
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
  ofOneOwner: boolean,
): Promise<void> {
  await connection.query(
    removeKeys(
      members.map(({ write }) => write),
      ofOneOwner,
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
