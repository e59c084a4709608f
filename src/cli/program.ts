import { Command, CommanderError } from 'commander';
import { codeOf } from '../api-errors.ts';
import { ConfigInvalid } from '../config.ts';
import { FileInvalid } from '../formats/format.ts';
import { CannotListen } from '../http/protocol/bind-listeners.ts';
import { CertificateInvalid } from '../http/protocol/tls.ts';
import { BatchRejected, StoreNotOpened, StoreUnavailable } from '../store/store.ts';
import { version } from '../version.ts';
import { CommandFailed } from './command-error.ts';
import { escapeLine, escapeLines } from './message.ts';

// Each is imported when it is asked for, so that none costs the others their start.
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  serve: async () => (await import('./commands/serve-command.ts')).serveCommand(),
  token: async () => (await import('./commands/token-command.ts')).tokenCommand(),
  import: async () => (await import('./commands/import-command.ts')).importCommand(),
  export: async () => (await import('./commands/export-command.ts')).exportCommand(),
  copy: async () => (await import('./commands/copy-command.ts')).copyCommand(),
  backup: async () => (await import('./commands/backup-command.ts')).backupCommand(),
  check: async () => (await import('./commands/check-command.ts')).checkCommand(),
  migrate: async () => (await import('./commands/migrate-command.ts')).migrateCommand(),
  openapi: async () => (await import('./commands/openapi-command.ts')).openapiCommand(),
};

/** Runs the command that the arguments of the process name. A failure goes to stderr and sets the exit code. */
export async function runProgram(): Promise<void> {
  const program = new Command('plant-store')
    .description('Keeps plants, over HTTP.')
    .version(version)
    .configureOutput({
      outputError: (text, write) => write(escapeLines(text.replace(/^error: /, 'plant-store: '))),
    })
    .showHelpAfterError('(--help shows what is possible)');
  // All of them for the help, and for what is no command.
  const asked = Object.entries(commands).filter(([name]) => name === process.argv[2]);
  for (const [, load] of asked.length > 0 ? asked : Object.entries(commands))
    program.addCommand(await load());
  inheritSettings(program);
  const fail = createFail();
  process.stdout.on('error', fail);
  // There is nobody left to tell.
  process.stderr.on('error', () => undefined);
  await program.parseAsync().catch(fail);
}

/** What tells a failure: once, where a command and its output both come with it. */
function createFail(): (error: unknown) => void {
  let told: unknown;
  return (error) => {
    process.exitCode = 1;
    // Whoever reads the output may have seen enough of it, as `head` does.
    if (error === told || error instanceof CommanderError || codeOf(error) === 'EPIPE') return;
    told = error;
    process.stderr.write(`plant-store: ${explanationOf(error)}\n`);
  };
}

// `addCommand` leaves a command as it is.
function inheritSettings(command: Command): void {
  for (const one of command.commands) {
    one.copyInheritedSettings(command);
    inheritSettings(one);
  }
}

/** The message of what a command is expected to run into; of anything else, where it came from too. */
function explanationOf(error: unknown): string {
  if (!(error instanceof Error)) return escapeLine(String(error));
  const isExpected =
    error instanceof ConfigInvalid ||
    error instanceof CannotListen ||
    error instanceof CertificateInvalid ||
    error instanceof StoreNotOpened ||
    error instanceof StoreUnavailable ||
    error instanceof BatchRejected ||
    error instanceof CommandFailed ||
    error instanceof FileInvalid ||
    'syscall' in error;
  return isExpected ? escapeLine(error.message) : escapeLines(error.stack ?? error.message);
}
