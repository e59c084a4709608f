import { Command, CommanderError } from 'commander';
import { version } from '../packaged-files.ts';
import { escapeLine, escapeLines } from '../terminal-text.ts';
import { codeOf, OperatorError } from '../thrown-errors.ts';
import { type CommandContext, type Output, OutputFailed, print } from './context.ts';
import { redact } from './message.ts';
import { warnOfLostSettings } from './settings/flags.ts';

// Imports each command on demand, so that no command slows down the start of another.
const commands: Readonly<Record<string, () => Promise<(context: CommandContext) => Command>>> = {
  serve: async () => (await import('./commands/serve-command.ts')).serveCommand,
  token: async () => (await import('./commands/token-command.ts')).tokenCommand,
  import: async () => (await import('./commands/import-command.ts')).importCommand,
  export: async () => (await import('./commands/export-command.ts')).exportCommand,
  copy: async () => (await import('./commands/copy-command.ts')).copyCommand,
  backup: async () => (await import('./commands/backup-command.ts')).backupCommand,
  check: async () => (await import('./commands/check-command.ts')).checkCommand,
  migrate: async () => (await import('./commands/migrate-command.ts')).migrateCommand,
  openapi: async () => (await import('./commands/openapi-command.ts')).openapiCommand,
};

/**
 * Runs the command in the arguments and writes a failure to standard error. Resolves to the exit code when
 * the command ends. For `serve`, resolves when the service accepts requests.
 */
export async function runProgram(argv: readonly string[], context: CommandContext): Promise<number> {
  let exitCode = 0;
  const report = createFailureReporter(context.stderr);
  const fail = (error: unknown): void => {
    exitCode = error instanceof CommanderError ? error.exitCode : 1;
    report(error);
  };
  context.stdout.on('error', (error) => fail(new OutputFailed(error)));
  // Only the exit code can report a lost message or audit line.
  context.stderr.on('error', () => {
    exitCode = 1;
  });
  await runCommand(argv, context).catch(fail);
  // Resolves after the last message, whose failure is an event.
  await new Promise<void>((resolve) => void context.stderr.write('', () => resolve()));
  return exitCode;
}

async function runCommand(argv: readonly string[], context: CommandContext): Promise<void> {
  let helpPrinted = Promise.resolve();
  const printHelp = (text: string): void => {
    helpPrinted = print(context, text);
  };
  const program = await createProgram(context, argv[0], printHelp);
  try {
    await program.parseAsync(argv, { from: 'user' });
  } catch (error: unknown) {
    // npm takes a flag, and passes its value on as an argument.
    if (error instanceof CommanderError && error.code === 'commander.excessArguments')
      warnOfLostSettings(context);
    throw error;
  } finally {
    await helpPrinted;
  }
}

/**
 * Creates the command-line parser. Adds only the command `name`. If `name` is missing or unknown, adds all
 * commands, so that the help lists them.
 */
export async function createProgram(
  context: CommandContext,
  name?: string,
  printHelp: (text: string) => void = (text) => void context.stdout.write(text),
): Promise<Command> {
  const { stdout, stderr } = context;
  const program = new Command('plant-store')
    .description('A small HTTP/JSON service that stores plants.')
    .version(version)
    .configureOutput({
      writeOut: printHelp,
      writeErr: (text) => void stderr.write(text),
      outputError: (text, write) => write(escapeLines(redact(text.replace(/^error: /, 'plant-store: ')))),
      getOutHelpWidth: () => widthOf(stdout),
      getErrHelpWidth: () => widthOf(stderr),
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .showHelpAfterError('(run with --help for usage)')
    .exitOverride()
    .hook('preAction', () => {
      // Fails if the folder was deleted: no thread could start, and a command would end midway.
      void context.cwd;
      warnOfLostSettings(context);
    });
  const requested = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  for (const load of requested === undefined ? Object.values(commands) : [requested])
    program.addCommand((await load())(context));
  inheritSettings(program);
  return program;
}

function widthOf({ isTTY, columns = 80 }: Output): number {
  return isTTY === true ? columns : 80;
}

/**
 * Creates a function that reports failures. The function skips an error with the same cause as the last one:
 * a command and its output stream may fail with the same error.
 */
function createFailureReporter(stderr: Output): (error: unknown) => void {
  let reported: unknown;
  return (error) => {
    const cause = error instanceof OutputFailed ? error.cause : error;
    // EPIPE needs no message: the reader closed the pipe early, as `head` does.
    if (cause === reported || error instanceof CommanderError || codeOf(cause) === 'EPIPE') return;
    reported = cause;
    stderr.write(`plant-store: ${explanationOf(error)}\n`);
  };
}

// Copies parser settings to subcommands: the method `addCommand` of commander does not copy them.
function inheritSettings(command: Command): void {
  for (const one of command.commands) {
    one.copyInheritedSettings(command);
    inheritSettings(one);
  }
}

/** Returns the message of an expected error, or the stack of an unexpected one. */
function explanationOf(error: unknown): string {
  if (!(error instanceof Error)) return escapeLine(String(error));
  const isExpected = error instanceof OperatorError || 'syscall' in error;
  return isExpected ? escapeLine(redact(error.message)) : escapeLines(redact(error.stack ?? error.message));
}
