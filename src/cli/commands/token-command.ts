import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Command, Option } from 'commander';
import type { Flags } from '../../config.ts';
import { displayUrl } from '../../database-url.ts';
import { type Audit, createAudit } from '../../observability/audit-log.ts';
import { revokeToken, storeToken } from '../../observability/audited-writes.ts';
import type { Contents } from '../../store/bulk-store.ts';
import { isOutcomeUnknown, type Store } from '../../store/store.ts';
import { escapeLine, escapeLines } from '../../terminal-text.ts';
import { messageOf } from '../../thrown-errors.ts';
import {
  DEFAULT_EXPIRES,
  digestSecret,
  EXPIRES_RULE,
  type FoundToken,
  isTokenId,
  isTokenName,
  isValid,
  isWellFormedSecret,
  mintSecret,
  newToken,
  parseExpires,
  parseScopes,
  scopes,
  TOKEN_NAME_RULE,
  type Token,
} from '../../token.ts';
import { rejectUnlessOwner } from '../arguments.ts';
import { CommandFailed } from '../command-errors.ts';
import { type CommandContext, print } from '../context.ts';
import { printResult, writeMessage } from '../message.ts';
import { withBulk, withStore } from '../open-store.ts';
import { addSettings, configOf } from '../settings/flags.ts';

export function tokenCommand(context: CommandContext): Command {
  return new Command('token')
    .description('creates, lists and revokes tokens')
    .addCommand(createTokenCommand(context))
    .addCommand(listTokensCommand(context))
    .addCommand(revokeTokenCommand(context));
}

function createTokenCommand(context: CommandContext): Command {
  const command = new Command('create')
    .description('creates a token and prints it; it is shown only once')
    .argument('<owner>', 'owner of the plants that the token gives access to')
    .addOption(
      new Option('--scope <scopes>', `comma-separated permissions: ${scopes.join(', ')}`)
        .default(scopes, scopes.join(','))
        .argParser<readonly string[]>(collectScopes),
    )
    .option('--expires <time>', `lifetime: ${EXPIRES_RULE}`, DEFAULT_EXPIRES)
    .option('--name <name>', 'name of the token, shown by `token list`');
  return addSettings(command, ['databaseUrl']).action(
    async (owner: string, flags: Flags & { scope: readonly string[]; expires: string; name?: string }) => {
      const { name = '' } = flags;
      const wanted = parseScopes(flags.scope.join(','));
      const now = Date.now();
      const expiresAt = parseExpires(flags.expires, now);
      rejectUnlessOwner(owner);
      if (!isTokenName(name)) {
        throw new CommandFailed(`--name must be ${TOKEN_NAME_RULE}`);
      }
      if (wanted === undefined)
        throw new CommandFailed(`--scope must be one or more of ${scopes.join(', ')}`);
      if (expiresAt === undefined) throw new CommandFailed(`--expires must be ${EXPIRES_RULE}`);
      const secret = mintSecret();
      const token = newToken(secret, owner, { scopes: wanted, expiresAt, name }, now);
      const audit = await auditOf(context);
      await withStore(context, configOf(context, flags), async (store) => {
        const { id } = token;
        await storeToken(store, audit, token).catch((error: unknown) => {
          throw explained(
            error,
            `the token ${id} of ${owner} may exist; run \`plant-store token revoke ${id}\`, then create another`,
          );
        });
        if (context.stderr.isTTY === true) writeMessage(context.stderr, describeCreation(token));
        await print(context, `${secret}\n`).catch(() => revokeUnseen(store, audit, id));
      });
    },
  );
}

/** Adds the value of a `--scope` flag to those of earlier flags. The first value replaces the default. */
function collectScopes(text: string, earlier: readonly string[]): readonly string[] {
  return earlier === scopes ? [text] : [...earlier, text];
}

/** Revokes a token that could not be printed. Rejects with CommandFailed, which says what to do. */
async function revokeUnseen(store: Store, audit: Audit, id: string): Promise<never> {
  await revokeToken(store, audit, id).catch((error: unknown) => {
    throw new CommandFailed(
      `the token could be neither printed nor revoked (${messageOf(error)}); revoke it: plant-store token revoke ${id}`,
    );
  });
  throw new CommandFailed('the token could not be printed, so it was revoked; run the command again');
}

/** Adds to an error that leaves the outcome unknown what may be stored, and what to do. Returns other errors unchanged. */
function explained(error: unknown, what: string): unknown {
  return isOutcomeUnknown(error)
    ? new CommandFailed(`${messageOf(error)}; ${what}`, { cause: error })
    : error;
}

function describeCreation({ id, owner, expiresAt }: Token): string {
  const end = expiresAt === null ? 'never expires' : `expires at ${formatTime(expiresAt)}`;
  return `a token of ${owner} (id ${id}, ${end}); the token is shown only once:`;
}

function listTokensCommand(context: CommandContext): Command {
  const command = new Command('list')
    .description('lists all tokens, without their secrets')
    .option('--json', 'print a JSON array');
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags & { json?: true }) => {
    const list = (contents: Contents) => printTokens(context, contents, flags.json === true);
    await withBulk(context, configOf(context, flags), (bulk) => bulk.read(['tokens'], list), {
      mustExist: true,
    });
  });
}

/** Prints the tokens page by page, in bounded memory. */
async function printTokens(context: CommandContext, contents: Contents, asJson: boolean): Promise<void> {
  // The escapes have the form of JSON, so the array stays the same.
  const show = context.stdout.isTTY === true ? escapeLines : (json: string) => json;
  const texts = asJson ? jsonOf(contents, show) : tableOf(contents);
  await pipeline(Readable.from(texts, { highWaterMark: 1 }), context.stdout, { end: false });
}

function revokeTokenCommand(context: CommandContext): Command {
  const command = new Command('revoke')
    .description('revokes a token; it stops working within a second')
    .argument('<id>', 'id from `token list`, or the token itself');
  return addSettings(command, ['databaseUrl']).action(async (named: string, flags: Flags) => {
    const config = configOf(context, flags);
    const audit = await auditOf(context);
    const token = await withStore(context, config, (store) => revoke(store, audit, named), {
      mustExist: true,
    });
    if (token === undefined) throw noSuchToken(named, config.databaseUrl);
    await printResult(context, describeRevocation(token));
  });
}

/**
 * Revokes a token, unless it is already revoked. Resolves to the token as it was before the call; to undefined if there is none.
 */
async function revoke(store: Store, audit: Audit, named: string): Promise<FoundToken | undefined> {
  const token = isWellFormedSecret(named)
    ? await store.findToken(digestSecret(named))
    : await store.findTokenById(named);
  if (token?.revokedAt === null) {
    const { id } = token;
    await revokeToken(store, audit, id).catch((error: unknown) => {
      throw explained(error, `the token ${id} may be revoked; run the command again`);
    });
  }
  return token;
}

function noSuchToken(named: string, databaseUrl: string): CommandFailed {
  // Quotes the argument only if it is a token id. Any other text may be a secret token or a part of one.
  const which = isTokenId(named) ? `no token ${named}` : 'no such token';
  return new CommandFailed(
    `there is ${which} in the store at ${displayUrl(databaseUrl)}; run \`plant-store token list\` to see all ids`,
  );
}

function describeRevocation({ id, owner, revokedAt }: FoundToken): string {
  const name = `${id} of ${escapeLine(owner)}`;
  if (revokedAt === null) return `revoked ${name}\n`;
  return `${name} was already revoked at ${formatTime(revokedAt)}\n`;
}

// Imports the log module on demand, since `token list` does not use it.
async function auditOf(context: CommandContext): Promise<Audit> {
  const { createCommandLog } = await import('../../observability/log.ts');
  return createAudit(createCommandLog(context.stderr));
}

function stateOf(token: Token, now: number): string {
  if (token.revokedAt !== null) return 'revoked';
  return isValid(token, now) ? 'valid' : 'expired';
}

/** Yields the tokens as a JSON array, formatted as by `JSON.stringify`. Passes each part through `show`. */
async function* jsonOf(contents: Contents, show: (json: string) => string): AsyncGenerator<string> {
  const now = Date.now();
  let before = '[\n';
  for await (const tokens of contents.tokens()) {
    const items = tokens.map((token) => JSON.stringify(toJson(token, now), null, 2).replaceAll('\n', '\n  '));
    yield show(`${before}  ${items.join(',\n  ')}`);
    before = ',\n';
  }
  yield before === ',\n' ? '\n]\n' : '[]\n';
}

function toJson(token: Token, now: number) {
  const { id, owner, name, scopes, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  return {
    id,
    owner,
    name,
    scopes,
    state: stateOf(token, now),
    createdAt: formatTime(createdAt),
    expiresAt: formatTime(expiresAt),
    revokedAt: formatTime(revokedAt),
    lastUsedAt: formatTime(lastUsedAt),
  };
}

// A damaged time may be beyond all dates.
function formatTime(time: number | null): string | null {
  if (time === null) return null;
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toISOString();
}

const HEADING = ['ID', 'OWNER', 'STATE', 'SCOPES', 'EXPIRES', 'LAST USED', 'NAME'];

/** Yields the tokens as a table. Reads the tokens twice, the first time for the column widths. */
async function* tableOf(contents: Contents): AsyncGenerator<string> {
  const now = Date.now();
  let widths = HEADING.map((cell) => cell.length);
  for await (const tokens of contents.tokens()) {
    for (const token of tokens)
      widths = rowOf(token, now).map((cell, column) => Math.max(widths[column] ?? 0, cell.length));
  }
  const lineOf = (row: readonly string[]): string => {
    const cells = row.map((cell, column) => cell.padEnd(widths[column] ?? 0));
    return `${cells.join('  ').trimEnd()}\n`;
  };
  yield lineOf(HEADING);
  for await (const tokens of contents.tokens())
    yield tokens.map((token) => lineOf(rowOf(token, now))).join('');
}

function rowOf(token: Token, now: number): readonly string[] {
  return [
    token.id,
    token.owner,
    stateOf(token, now),
    token.scopes.join(','),
    formatTime(token.expiresAt) ?? 'never',
    formatTime(token.lastUsedAt) ?? 'never',
    token.name,
  ].map(escapeLine);
}
