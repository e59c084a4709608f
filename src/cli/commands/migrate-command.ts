import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { migrateStore } from '../../store/open-engine.ts';
import { addSettings, configOf } from '../flags.ts';
import { announceIfCreated } from '../open-store.ts';

export function migrateCommand(): Command {
  const command = new Command('migrate').description(
    'migrates the store to the current schema; `serve` does this too',
  );
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags) => {
    const { databaseUrl } = configOf(flags);
    const applied = await announceIfCreated(databaseUrl, () => migrateStore(databaseUrl));
    process.stdout.write(
      applied.length === 0 ? 'nothing to apply\n' : applied.map((name) => `applied ${name}\n`).join(''),
    );
  });
}
