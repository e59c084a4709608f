import { Command, CommanderError } from 'commander';
import { ConfigInvalid } from '../config.ts';
import { FileInvalid } from '../formats/format.ts';
import { CertificateInvalid } from '../http/tls.ts';
import { BatchRefused, StoreNotOpened, StoreUnavailable } from '../store.ts';
import { backupCommand } from './backup.ts';
import { checkCommand } from './check.ts';
import { CommandFailed } from './command-failed.ts';
import { copyCommand } from './copy.ts';
import { exportCommand } from './export.ts';
import { importCommand } from './import.ts';
import { migrateCommand } from './migrate.ts';
import { openapiCommand } from './openapi.ts';
import { serveCommand } from './serve.ts';
import { tokenCommand } from './token.ts';

/** Runs the command that the arguments of the process name. A failure goes to stderr and sets the exit code. */
export async function runProgram(): Promise<void> {
  const program = new Command('plant-store')
    .description('Keeps plants, over HTTP.')
    .showHelpAfterError('(--help shows what is possible)')
    .addCommand(serveCommand())
    .addCommand(tokenCommand())
    .addCommand(importCommand())
    .addCommand(exportCommand())
    .addCommand(copyCommand())
    .addCommand(backupCommand())
    .addCommand(checkCommand())
    .addCommand(migrateCommand())
    .addCommand(openapiCommand());
  try {
    await program.parseAsync();
  } catch (error: unknown) {
    process.exitCode = 1;
    if (error instanceof CommanderError || isBrokenPipe(error)) return;
    process.stderr.write(`plant-store: ${messageOf(error)}\n`);
  }
}

// Whoever reads the output has seen enough of it, as `head` does.
function isBrokenPipe(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EPIPE';
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const isExpected =
    error instanceof ConfigInvalid ||
    error instanceof CertificateInvalid ||
    error instanceof StoreNotOpened ||
    error instanceof StoreUnavailable ||
    error instanceof BatchRefused ||
    error instanceof CommandFailed ||
    error instanceof FileInvalid ||
    'syscall' in error;
  return isExpected ? error.message : (error.stack ?? error.message);
}
