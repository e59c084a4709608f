import { Command } from 'commander';
import { type Audit, createAudit } from '../audit.ts';
import { createCommandLog } from '../log.ts';
import {
  DEFAULT_EXPIRES,
  isTokenName,
  isValid,
  mintSecret,
  newToken,
  parseExpires,
  parseScopes,
  scopes,
  type Token,
} from '../token.ts';
import { CommandFailed } from './command-failed.ts';
import { refuseUnlessLocalOwner } from './owner.ts';
import { addSettings, configOf, type Flags } from './settings.ts';
import { withStore } from './store.ts';

export function tokenCommand(): Command {
  return new Command('token')
    .description('makes, lists and revokes the tokens that callers show')
    .addCommand(createTokenCommand())
    .addCommand(listTokensCommand())
    .addCommand(revokeTokenCommand());
}

function createTokenCommand(): Command {
  const command = new Command('create')
    .description('makes a token and prints it; it is shown this once')
    .argument('<owner>', 'whose plants it opens')
    .option('--scope <scopes>', `what it may do, separated by commas: ${scopes.join(', ')}`, scopes.join(','))
    .option('--expires <time>', 'when it expires: 30m, 12h, 90d or never', DEFAULT_EXPIRES)
    .option('--name <name>', 'a note for the list of tokens', '');
  return addSettings(command, ['databaseUrl']).action(
    async (owner: string, flags: Flags & { scope: string; expires: string; name: string }) => {
      const wanted = parseScopes(flags.scope);
      const now = Date.now();
      const expiresAt = parseExpires(flags.expires, now);
      refuseUnlessLocalOwner(owner);
      if (!isTokenName(flags.name)) {
        throw new CommandFailed('--name must be up to 255 characters without control characters');
      }
      if (wanted === undefined) throw new CommandFailed(`--scope must be some of ${scopes.join(', ')}`);
      if (expiresAt === undefined)
        throw new CommandFailed('--expires must be a time such as 30m, 12h or 90d, or never');
      const secret = mintSecret();
      const token = newToken(secret, owner, { scopes: wanted, expiresAt, name: flags.name }, now);
      await withStore(flags, (store) => store.write({ kind: 'createToken', token }));
      (await auditOf(flags)).tokenCreated(token);
      process.stdout.write(`${secret}\n`);
    },
  );
}

function listTokensCommand(): Command {
  const command = new Command('list')
    .description('lists all tokens; their secrets are not kept')
    .option('--json', 'as a JSON array');
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags & { json?: true }) => {
    const tokens = await withStore(flags, (store) => store.listTokens(), 'existing');
    process.stdout.write(
      flags.json === true ? `${JSON.stringify(tokens.map(toJson), null, 2)}\n` : toTable(tokens),
    );
  });
}

function revokeTokenCommand(): Command {
  const command = new Command('revoke')
    .description('ends a token; within a second it opens nothing any more')
    .argument('<id>', 'the id that `token list` shows');
  return addSettings(command, ['databaseUrl']).action(async (id: string, flags: Flags) => {
    const outcome = await withStore(
      flags,
      (store) => store.write({ kind: 'revokeToken', id, at: Date.now() }),
      'existing',
    );
    if (outcome === 'absent')
      throw new CommandFailed(`there is no token ${id}; \`plant-store token list\` shows those there are`);
    (await auditOf(flags)).tokenRevoked(id);
  });
}

async function auditOf(flags: Flags): Promise<Audit> {
  return createAudit(await createCommandLog(configOf(flags).logLevel));
}

function stateOf(token: Token): string {
  if (token.revokedAt !== null) return 'revoked';
  return isValid(token, Date.now()) ? 'valid' : 'expired';
}

function toJson(token: Token) {
  const { id, owner, name, scopes, createdAt, expiresAt, revokedAt, lastUsedAt } = token;
  return {
    id,
    owner,
    name,
    scopes,
    state: stateOf(token),
    createdAt: formatTime(createdAt),
    expiresAt: formatTime(expiresAt),
    revokedAt: formatTime(revokedAt),
    lastUsedAt: formatTime(lastUsedAt),
  };
}

function formatTime(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString();
}

function toTable(tokens: readonly Token[]): string {
  const rows = tokens.map((token) => [
    token.id,
    token.owner,
    stateOf(token),
    token.scopes.join(','),
    formatTime(token.expiresAt) ?? 'never',
    formatTime(token.lastUsedAt) ?? 'never',
    token.name,
  ]);
  const table = [['ID', 'OWNER', 'STATE', 'SCOPES', 'EXPIRES', 'LAST USED', 'NAME'], ...rows];
  const widths =
    table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0))) ?? [];
  const lines = table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}
