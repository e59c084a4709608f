import { Command } from 'commander';
import { brokenRuleOf, brokenRuleOfSslMode, displayUrl } from '../../database-url.ts';
import {
  type Bulk,
  type Contents,
  type Filling,
  LeftInLog,
  StoreNotEmpty,
  storeParts,
} from '../../store/bulk-store.ts';
import { isEmbedded, rejectUnlessFillable } from '../../store/open-engine.ts';
import { NothingStored } from '../../store/store.ts';
import { OperatorError } from '../../thrown-errors.ts';
import { CommandFailed } from '../command-errors.ts';
import type { CommandContext, Output } from '../context.ts';
import { pluralize, printResult, writeMessage } from '../message.ts';
import { withBulk } from '../open-store.ts';
import { type Progress, startProgress } from '../progress.ts';
import { createRowChecksum, type RowChecksum } from '../row-checksum.ts';
import { absoluteUrl, configOf } from '../settings/flags.ts';
import { onSignal } from '../signal-handler.ts';

export function copyCommand(context: CommandContext): Command {
  return new Command('copy')
    .description(
      'copies plants, tokens and idempotency keys to an empty store; each store may be SQLite or PostgreSQL',
    )
    .argument('<from>', 'database URL of the store to read, or env:NAME to take it from a variable')
    .argument('<to>', 'database URL of a new or empty store, or env:NAME')
    .option('--json', 'print the counts as a JSON object')
    .action(async (...[fromText, toText, { json }]: [string, string, { json?: true }]) => {
      const from = databaseUrlOf(context, 'FROM', fromText);
      const to = databaseUrlOf(context, 'TO', toText);
      const copied = await openAndCopy(context, from, to).catch((error: unknown) => {
        if (!(error instanceof StoreNotEmpty)) throw error;
        throw new CommandFailed(
          `${displayUrl(to)} is not empty; nothing was copied. Use a new file or an empty database`,
        );
      });
      await printResult(context, json === true ? `${JSON.stringify(copied)}\n` : describe(copied));
    });
}

async function openAndCopy(context: CommandContext, from: string, to: string): Promise<Copied> {
  const config = configOf(context, {});
  // First, since opening the source migrates it.
  await rejectUnlessFillable(to);
  return withBulk(
    context,
    { ...config, databaseUrl: from },
    async (source) => {
      await warnIfServed(context, from, source);
      await rejectFaulty(from, source);
      return withBulk(context, { ...config, databaseUrl: to }, (target) =>
        copyOrExplain(context, to, source, target),
      );
    },
    { mustExist: true, hint: 'FROM must name an existing one' },
  );
}

/**
 * Returns the database URL in an argument. The form `env:NAME` takes the URL from the variable NAME, so that
 * the process list does not show it.
 */
function databaseUrlOf(context: CommandContext, argument: string, text: string): string {
  const [, variable] = /^env:(.*)/s.exec(text) ?? [];
  const url = variable === undefined ? text : readVariable(context, argument, variable);
  const rule = brokenRuleOf(url) ?? brokenRuleOfSslMode(url, context.env);
  if (rule === undefined) return absoluteUrl(context, url);
  throw new CommandFailed(`${variable === undefined ? argument : `${argument} (${variable})`} ${rule}`);
}

function readVariable(context: CommandContext, argument: string, variable: string): string {
  const value = context.env[variable];
  if (value) return value;
  throw new CommandFailed(
    /^\w+$/.test(variable)
      ? `${argument} is env:${variable}, but the variable ${variable} is not set; set it`
      : `${argument} begins with "env:" but names no variable; write env:NAME`,
  );
}

/** Reports a source store in use, since clients expect to find what they store from now on. */
async function warnIfServed({ stderr }: CommandContext, from: string, source: Bulk): Promise<void> {
  if (!(await source.isServed())) return;
  writeMessage(
    stderr,
    `plant-store: a service seems to use ${displayUrl(from)}; the copy lacks what it stores from now on. To move the store, stop the service, then copy`,
  );
}

/**
 * Rejects a source store that is damaged, since a read may skip plants of a damaged page without an error. Rejects one that a
 * newer version of the program changed: the copy would lack that version's additional data.
 */
async function rejectFaulty(from: string, source: Bulk): Promise<void> {
  const { otherVersion, damages } = await source.inspect();
  if (otherVersion !== undefined) throw new CommandFailed(`${displayUrl(from)}: ${otherVersion}`);
  const [fault, ...others] = damages;
  if (fault === undefined) return;
  const more = others.length === 0 ? '' : `, and ${pluralize(others.length, 'more fault')}`;
  throw new CommandFailed(
    `the store ${displayUrl(from)} is damaged: ${fault}${more}; nothing was copied. \`plant-store check\` lists the faults; restore a backup, or save what can be read with \`plant-store export\``,
  );
}

/**
 * Copies `source` to `target`, the store `to`. If that fails, the error says what `to` has. A signal reports the same and
 * ends the process, which rolls the copy back.
 */
async function copyOrExplain(
  context: CommandContext,
  to: string,
  source: Bulk,
  target: Bulk,
): Promise<Copied> {
  const place = displayUrl(to);
  let isCommitting = false;
  const state = (): string =>
    isCommitting
      ? `${place} has all of the copy or nothing; \`plant-store check\` shows which`
      : `nothing was copied; copy to ${place} again${isEmbedded(to) ? ', or remove it with its -wal and -shm' : ''}`;
  const stopListening = onSignal(context, (signal) => {
    writeMessage(context.stderr, `plant-store: interrupted; ${state()}`);
    context.end(signal);
  });
  try {
    return await copyStore(context.stderr, source, target, () => {
      isCommitting = true;
    });
  } catch (error: unknown) {
    if (!(error instanceof OperatorError) || error instanceof LeftInLog) throw error;
    if (error instanceof NothingStored) isCommitting = false;
    throw new CommandFailed(`${error.message}; ${state()}`, { cause: error });
  } finally {
    stopListening();
  }
}

interface Copied {
  readonly plants: number;
  readonly tokens: number;
  readonly keys: number;
  /** Checksum of all copied plants. */
  readonly checksum: string;
}

/**
 * Copies all rows of a store to a new store and reads them back. Rejects with CommandFailed if counts or
 * checksums differ. Nothing is copied unless the source was read to its end: its read ends before the copy is
 * read back and committed. Calls `onCommit` before the commit.
 */
export function copyStore(
  stderr: Output,
  source: Pick<Bulk, 'read'>,
  target: Pick<Bulk, 'fill'>,
  onCommit: () => void,
): Promise<Copied> {
  return target.fill(async (filling) => {
    let progress: Progress | undefined;
    try {
      const sent = await source.read(storeParts, async (contents) => {
        progress = startProgress(stderr, 'plants', 2 * (await contents.countPlants()));
        return send(contents, filling, progress);
      });
      await verify('idempotency keys', sent.keys, filling.keys());
      await verify('tokens', sent.tokens, filling.tokens());
      await verify('plants', sent.plants, filling.plants(), progress);
      onCommit();
      return {
        plants: sent.plants.count(),
        tokens: sent.tokens.count(),
        keys: sent.keys.count(),
        checksum: sent.plants.checksum(),
      };
    } finally {
      progress?.stop();
    }
  });
}

async function send(from: Contents, to: Filling, progress: Progress) {
  return {
    keys: await sendTable(from.keys(), to.addKeys),
    tokens: await sendTable(from.tokens(), to.addTokens),
    plants: await sendTable(from.plants(), to.addPlants, progress),
  };
}

async function sendTable<T extends object>(
  pages: AsyncIterable<readonly T[]>,
  add: (rows: readonly T[]) => Promise<void>,
  progress?: Progress,
): Promise<RowChecksum<T>> {
  const sent = createRowChecksum<T>();
  for await (const page of pages) {
    await add(page);
    sent.add(page);
    progress?.advance(sent.count());
  }
  return sent;
}

async function verify<T extends object>(
  name: string,
  sent: RowChecksum<T>,
  pages: AsyncIterable<readonly T[]>,
  progress?: Progress,
): Promise<void> {
  const arrived = createRowChecksum<T>();
  for await (const page of pages) {
    arrived.add(page);
    progress?.advance(sent.count() + arrived.count());
  }
  if (sent.count() !== arrived.count() || sent.checksum() !== arrived.checksum()) {
    throw new CommandFailed(
      `verification failed: sent ${sent.count()} ${name} (checksum ${sent.checksum()}), read back ${arrived.count()} ` +
        `(checksum ${arrived.checksum()}). Stop other processes that write to the target`,
    );
  }
}

function describe({ plants, tokens, keys, checksum }: Copied): string {
  return `copied and verified: ${pluralize(plants, 'plant')} (checksum ${checksum}), ${pluralize(tokens, 'token')}, ${pluralize(keys, 'idempotency key')}\n`;
}
