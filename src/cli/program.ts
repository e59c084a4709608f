import { Command, CommanderError } from 'commander';
import { codeOf } from '../api-errors.ts';
import { ConfigInvalid } from '../config.ts';
import { FileInvalid } from '../formats/format.ts';
import { CannotListen } from '../http/protocol/bind-listeners.ts';
import { CertificateInvalid } from '../http/protocol/tls.ts';
import { BatchRejected, StoreNotOpened, StoreUnavailable } from '../store/store.ts';
import { version } from '../version.ts';
import { CommandFailed } from './command-errors.ts';
import { escapeLine, escapeLines } from './message.ts';

// Each command is imported on demand, so that it does not slow down the start of the others.
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

/** Creates the program with one command, or with all for the help and for an unknown command. */
export async function createProgram(name?: string): Promise<Command> {
  const program = new Command('plant-store')
    .description('A small HTTP/JSON service that stores plants.')
    .version(version)
    .configureOutput({
      outputError: (text, write) => write(escapeLines(text.replace(/^error: /, 'plant-store: '))),
    })
    .showHelpAfterError('(run with --help for usage)');
  const requested = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  for (const load of requested === undefined ? Object.values(commands) : [requested])
    program.addCommand(await load());
  inheritSettings(program);
  return program;
}

/** Runs the command in `process.argv`. Writes a failure to stderr and sets the exit code to 1. */
export async function runProgram(): Promise<void> {
  const program = await createProgram(process.argv[2]);
  const reportFailure = createFailureReporter();
  process.stdout.on('error', reportFailure);
  // An error of stderr cannot be reported.
  process.stderr.on('error', () => undefined);
  await program.parseAsync().catch(reportFailure);
}

/** Reports a failure once, even when both the command and its output stream fail with it. */
function createFailureReporter(): (error: unknown) => void {
  let reported: unknown;
  return (error) => {
    process.exitCode = 1;
    // EPIPE: the reader closed the pipe early, as `head` does.
    if (error === reported || error instanceof CommanderError || codeOf(error) === 'EPIPE') return;
    reported = error;
    process.stderr.write(`plant-store: ${explanationOf(error)}\n`);
  };
}

// `addCommand` does not pass settings on to subcommands.
function inheritSettings(command: Command): void {
  for (const one of command.commands) {
    one.copyInheritedSettings(command);
    inheritSettings(one);
  }
}

/** The message of an expected error; the stack of any other. */
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
