import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { IDEMPOTENCY_KEY_RULE, isIdempotencyKey, NewPlant, type PlantRow } from '../../plant.ts';
import type { Bulk, Contents, KeyRow, StorePart } from '../../store/bulk-store.ts';
import { StoreDamaged, StoreUnavailable } from '../../store/store.ts';
import { escapeLine } from '../../terminal-text.ts';
import { messageOf } from '../../thrown-errors.ts';
import { isOwner, isOwnerOfSubject, isTokenId, isTokenName, type Token } from '../../token.ts';
import { compileCheck } from '../../validation.ts';
import { CommandFailed } from '../command-errors.ts';
import { type CommandContext, print } from '../context.ts';
import { pluralize } from '../message.ts';
import { withBulk } from '../open-store.ts';
import { startProgress } from '../progress.ts';
import { addSettings, configOf } from '../settings/flags.ts';

const DIGEST_BYTES = 32;
const FAULTS_SHOWN = 100;
const TIME_RULE = 'milliseconds since the epoch';

interface Report {
  readonly plants: number;
  readonly tokens: number;
  readonly keys: number;
  readonly faults: readonly string[];
  /** True if the only fault is that another version of the program, or a migration, is needed. */
  readonly isOtherVersion: boolean;
}

export function checkCommand(context: CommandContext): Command {
  const command = new Command('check')
    .description('checks the store for damaged pages, a wrong schema and invalid rows')
    .option('--json', 'print the result as a JSON object');
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags & { json?: true }) => {
    const report = await withBulk(context, configOf(context, flags), (bulk) => checkStore(context, bulk), {
      mustExist: true,
      migrate: false,
    });
    const { faults, isOtherVersion, ...counts } = report;
    const json = JSON.stringify({ sound: faults.length === 0, ...counts, faults });
    // The escapes have the form of JSON, so the object stays the same.
    const shown = context.stdout.isTTY === true ? escapeLine(json) : json;
    await print(context, flags.json === true ? `${shown}\n` : describe(report));
    if (faults.length === 0) return;
    const advice = isOtherVersion ? '' : '; make a copy of the store before you change anything';
    throw new CommandFailed(`${pluralize(faults.length, 'fault')} found${advice}`);
  });
}

/** Checks the store's pages and schema. If both are sound, also checks each row. */
async function checkStore(context: CommandContext, bulk: Bulk): Promise<Report> {
  const { otherVersion, damages } = await bulk.inspect();
  const isOtherVersion = otherVersion !== undefined;
  const faults = isOtherVersion ? [otherVersion] : [...damages];
  if (faults.length > 0) return { plants: 0, tokens: 0, keys: 0, faults, isOtherVersion };
  const progress = startProgress(context.stderr, 'plants', await countPlants(bulk));

  async function checkTable<T>(
    part: StorePart,
    rowsOf: (contents: Contents) => AsyncIterable<readonly T[]>,
    faultOf: (row: T) => string | undefined,
  ): Promise<number> {
    let read = 0;
    try {
      await bulk.read([part], async (contents) => {
        for await (const page of rowsOf(contents)) {
          faults.push(...page.map(faultOf).filter((fault) => fault !== undefined));
          read += page.length;
          progress.advance(read);
        }
      });
    } catch (error: unknown) {
      if (error instanceof StoreUnavailable && !(error instanceof StoreDamaged)) throw error;
      faults.push(`${part === 'keys' ? 'idempotency keys' : part}, after row ${read}: ${messageOf(error)}`);
    }
    return read;
  }

  try {
    const plants = await checkTable('plants', (contents) => contents.plants(), faultOfPlant);
    const tokens = await checkTable('tokens', (contents) => contents.tokens(), faultOfToken);
    const keys = await checkTable('keys', (contents) => contents.keys(), faultOfKey);
    return { plants, tokens, keys, faults, isOtherVersion };
  } finally {
    progress.stop();
  }
}

/** Counts the plants. Resolves to undefined if the store is too damaged. */
async function countPlants(bulk: Bulk): Promise<number | undefined> {
  try {
    return await bulk.read(['plants'], (contents) => contents.countPlants());
  } catch (error: unknown) {
    if (error instanceof StoreDamaged) return undefined;
    throw error;
  }
}

const checkPlant = compileCheck(NewPlant);

function faultOfPlant({ owner, id, ...fields }: PlantRow): string | undefined {
  const invalid = faultOfOwner(owner);
  if (invalid !== undefined) return `the plant ${id}: ${invalid}`;
  const present = Object.entries(fields).filter(([, value]) => value !== null);
  const checked = checkPlant({ id, ...Object.fromEntries(present) });
  if ('value' in checked) return undefined;
  return `the plant ${id} of ${owner}: its ${checked.violation.field} ${checked.violation.rule}`;
}

function faultOfToken(token: Token): string | undefined {
  const { id, owner, name, digest, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  if (!isTokenId(id)) return `the token ${JSON.stringify(id)}: its id is invalid`;
  const invalid = faultOfOwner(owner);
  if (invalid !== undefined) return `the token ${id}: ${invalid}`;
  if (!isTokenName(name)) return `the token ${id}: its name is invalid`;
  if (digest.length !== DIGEST_BYTES) return `the token ${id}: its digest is not SHA-256`;
  const times = [createdAt, expiresAt, revokedAt, lastUsedAt].filter((time) => time !== null);
  return times.every(isTime) ? undefined : `the token ${id}: its times must be ${TIME_RULE}`;
}

function faultOfKey({ owner, key, digest, outcome, firstUsedAt }: KeyRow): string | undefined {
  const invalid = faultOfOwner(owner);
  if (invalid !== undefined) return `the idempotency key ${JSON.stringify(key)}: ${invalid}`;
  const name = `the idempotency key ${JSON.stringify(key)} of ${owner}`;
  if (!isIdempotencyKey(key)) return `${name}: it must be ${IDEMPOTENCY_KEY_RULE}`;
  if (digest.length !== DIGEST_BYTES) return `${name}: its digest is not SHA-256`;
  if (outcome !== 'created' && outcome !== 'idTaken')
    return `${name}: its outcome is neither created nor idTaken`;
  return isTime(firstUsedAt) ? undefined : `${name}: its time must be ${TIME_RULE}`;
}

function faultOfOwner(owner: string): string | undefined {
  return isOwner(owner) || isOwnerOfSubject(owner)
    ? undefined
    : `its owner ${JSON.stringify(owner)} is invalid`;
}

function isTime(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

function describe({ plants, tokens, keys, faults }: Report): string {
  if (faults.length === 0)
    return `sound: ${pluralize(plants, 'plant')}, ${pluralize(tokens, 'token')}, ${pluralize(keys, 'idempotency key')}\n`;
  const shown = faults.slice(0, FAULTS_SHOWN).map((fault) => `${escapeLine(fault)}\n`);
  return shown.join('') + (faults.length > shown.length ? `and ${faults.length - shown.length} more\n` : '');
}
