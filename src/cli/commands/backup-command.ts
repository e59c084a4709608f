import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { placeOf } from '../../database-url.ts';
import { backUpStore, isEmbedded } from '../../store/open-engine.ts';
import { makeWholeFile } from '../atomic-file.ts';
import { CommandFailed } from '../command-error.ts';
import { parseFile } from '../file-argument.ts';
import { addSettings, configOf } from '../flags.ts';
import { writeMessage } from '../message.ts';
import { DATABASE_URL_HINT, rejectUnlessExists } from '../open-store.ts';
import { type Progress, startProgress } from '../progress.ts';

export function backupCommand(): Command {
  const command = new Command('backup')
    .description('copies the embedded store to a new file, also while the service runs, and checks the copy')
    .argument('<file>', 'the file to make; one that exists is never overwritten', parseFile);
  return addSettings(command, ['databaseUrl']).action(async (file: string, flags: Flags) => {
    const { databaseUrl } = configOf(flags);
    if (!isEmbedded(databaseUrl)) {
      throw new CommandFailed(
        `a store on PostgreSQL is backed up by its own tools: pg_dump --format=custom --file=${file} '${placeOf(databaseUrl)}'`,
      );
    }
    rejectUnlessExists(databaseUrl, DATABASE_URL_HINT);
    await makeWholeFile(file, (partial) => backUpWithProgress(databaseUrl, partial));
    writeMessage(`backed up to ${file}, and checked`);
  });
}

async function backUpWithProgress(url: string, file: string): Promise<void> {
  let progress: Progress | undefined;
  try {
    await backUpStore(url, file, (done, total) => {
      progress ??= startProgress('pages', total);
      progress.advance(done);
    });
  } finally {
    progress?.stop();
  }
}
