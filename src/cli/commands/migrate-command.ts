import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { migrateStore } from '../../store/open-engine.ts';
import { addSettings, configOf } from '../flags.ts';
import { sayingWhenNew } from '../open-store.ts';

export function migrateCommand(): Command {
  const command = new Command('migrate').description(
    'brings the schema of the store up to date; `serve` does so too',
  );
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags) => {
    const { databaseUrl } = configOf(flags);
    const applied = await sayingWhenNew(databaseUrl, () => migrateStore(databaseUrl));
    process.stdout.write(
      applied.length === 0 ? 'nothing to apply\n' : applied.map((name) => `applied ${name}\n`).join(''),
    );
  });
}
