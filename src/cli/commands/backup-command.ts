import { Command, InvalidArgumentError } from 'commander';
import type { Flags } from '../../config.ts';
import { displayUrl, withoutPassword } from '../../database-url.ts';
import { backUpStore, isEmbedded } from '../../store/open-engine.ts';
import { parseFile } from '../arguments.ts';
import { type PartialFile, rejectIfReplaced, writeAtomically } from '../atomic-file.ts';
import { CommandFailed } from '../command-errors.ts';
import type { CommandContext } from '../context.ts';
import { writeMessage } from '../message.ts';
import { DATABASE_URL_HINT, rejectUnlessExists } from '../open-store.ts';
import { STANDARD_STREAM } from '../plant-file.ts';
import { type Progress, startProgress } from '../progress.ts';
import { addSettings, configOf } from '../settings/flags.ts';

export function backupCommand(context: CommandContext): Command {
  const command = new Command('backup')
    .description('backs up a SQLite store to a new file and checks the copy; the service can keep running')
    .argument('<file>', 'file to create; an existing file is never overwritten', (text) => {
      if (text === STANDARD_STREAM)
        throw new InvalidArgumentError('A backup cannot be written to standard output; name a file.');
      return parseFile(context)(text);
    });
  return addSettings(command, ['databaseUrl']).action(async (file: string, flags: Flags) => {
    const { databaseUrl } = configOf(context, flags);
    if (!isEmbedded(databaseUrl)) {
      const url = withoutPassword(databaseUrl);
      const note = url === databaseUrl ? '' : ', with the password in PGPASSWORD or ~/.pgpass';
      throw new CommandFailed(
        `this command backs up only the embedded store; for PostgreSQL run (umask 077 && pg_dump --format=custom --file=${quoted(file)} ${quoted(url)})${note}`,
      );
    }
    await rejectUnlessExists(databaseUrl, DATABASE_URL_HINT);
    await writeAtomically(context, file, (partial) => backUpWithProgress(context, databaseUrl, partial));
    writeMessage(context.stderr, `backup of ${displayUrl(databaseUrl)} written to ${file} and checked`);
  });
}

/** Quotes an argument for a POSIX shell. */
function quoted(argument: string): string {
  return `'${argument.replaceAll("'", String.raw`'\''`)}'`;
}

async function backUpWithProgress(context: CommandContext, url: string, partial: PartialFile): Promise<void> {
  let progress: Progress | undefined;
  const onProgress = (done: number, total: number): void => {
    progress ??= startProgress(context.stderr, 'pages', total);
    progress.advance(done);
  };
  try {
    await backUpStore(url, partial.path, onProgress, () => rejectIfReplaced(partial));
  } finally {
    progress?.stop();
  }
}
