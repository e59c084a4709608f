import { Command } from 'commander';
import { demandOfDatabaseUrl, placeOf } from '../../database-url.ts';
import { type Bulk, type Contents, type Filling, StoreNotEmpty } from '../../store/bulk-store.ts';
import { CommandFailed } from '../command-error.ts';
import { withBulk } from '../open-store.ts';
import { count } from '../pluralize.ts';
import { type Progress, startProgress } from '../progress.ts';
import { createTally, type Tally } from '../row-checksum.ts';

export function copyCommand(): Command {
  return new Command('copy')
    .description('carries plants, tokens and idempotency keys to an empty store, on either engine')
    .argument('<from>', 'the database URL of the store to read, or env:NAME for the variable that has it')
    .argument('<to>', 'that of a new or empty one, likewise')
    .option('--json', 'what was copied as a JSON object')
    .action(async (...[fromText, toText, { json }]: [string, string, { json?: true }]) => {
      const from = databaseUrlOf('FROM', fromText);
      const to = databaseUrlOf('TO', toText);
      const copied = await withBulk(
        { url: from, hint: 'FROM must name one' },
        async (source) => {
          await rejectNewer(from, source);
          return withBulk({ url: to }, (target) =>
            source.read((contents) => target.fill((filling) => copyContents(contents, filling))),
          );
        },
        { which: 'existing' },
      ).catch((error: unknown) => {
        if (!(error instanceof StoreNotEmpty)) throw error;
        throw new CommandFailed(
          `${placeOf(to)} is not empty, and nothing was copied; name a new file or an empty database`,
        );
      });
      process.stdout.write(json === true ? `${JSON.stringify(copied)}\n` : describe(copied));
    });
}

/** The URL itself, or that of the variable it names: arguments are in the list of processes, variables are not. */
function databaseUrlOf(argument: string, text: string): string {
  const variable = text.startsWith('env:') ? text.slice('env:'.length) : undefined;
  const url = variable === undefined ? text : process.env[variable];
  if (!url) throw new CommandFailed(`${argument} names the variable ${variable}, which is not set`);
  const demand = demandOfDatabaseUrl(url);
  if (demand === undefined) return url;
  throw new CommandFailed(`${variable === undefined ? argument : `${argument} (${variable})`} ${demand}`);
}

/** What a newer version added would stay behind. */
async function rejectNewer(from: string, source: Bulk): Promise<void> {
  const [fault] = await source.inspectSchema();
  if (fault !== undefined) throw new CommandFailed(`${placeOf(from)}: ${fault}`);
}

interface Copied {
  readonly plants: number;
  readonly tokens: number;
  readonly keys: number;
  /** Of the plants. */
  readonly checksum: string;
}

/**
 * Copies all that a store keeps to one in the making, and reads it back.
 * Rejects with CommandFailed when that is not what was read, by count or by checksum.
 */
export async function copyContents(from: Contents, to: Filling): Promise<Copied> {
  const progress = startProgress('plants', 2 * (await from.countPlants()));
  try {
    // Keys before plants: where a key says 'created', the plant is there.
    const keys = await copyTable(
      'idempotency keys',
      () => from.keys(),
      to.addKeys,
      () => to.keys(),
    );
    const tokens = await copyTable(
      'tokens',
      () => from.tokens(),
      to.addTokens,
      () => to.tokens(),
    );
    const plants = await copyTable(
      'plants',
      () => from.plants(),
      to.addPlants,
      () => to.plants(),
      progress,
    );
    return {
      plants: plants.count(),
      tokens: tokens.count(),
      keys: keys.count(),
      checksum: plants.checksum(),
    };
  } finally {
    progress.stop();
  }
}

async function copyTable<T extends object>(
  name: string,
  read: () => AsyncIterable<readonly T[]>,
  add: (rows: readonly T[]) => Promise<void>,
  readBack: () => AsyncIterable<readonly T[]>,
  progress?: Progress,
): Promise<Tally<T>> {
  const sent = createTally<T>();
  for await (const page of read()) {
    await add(page);
    sent.add(page);
    progress?.advance(sent.count());
  }
  const arrived = createTally<T>();
  for await (const page of readBack()) {
    arrived.add(page);
    progress?.advance(sent.count() + arrived.count());
  }
  if (sent.count() !== arrived.count() || sent.checksum() !== arrived.checksum()) {
    throw new CommandFailed(
      `${sent.count()} ${name} with the checksum ${sent.checksum()} were sent, and ${arrived.count()} with ` +
        `${arrived.checksum()} arrived; nothing was copied. Is something else writing to the target?`,
    );
  }
  return sent;
}

function describe({ plants, tokens, keys, checksum }: Copied): string {
  return `copied and verified: ${count(plants, 'plant')} (checksum ${checksum}), ${count(tokens, 'token')}, ${count(keys, 'idempotency key')}\n`;
}
