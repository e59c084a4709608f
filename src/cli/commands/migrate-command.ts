import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import type { CommandContext } from '../context.ts';
import { printResult } from '../message.ts';
import { migrateAndAnnounce, reportLogLeft } from '../open-store.ts';
import { addSettings, configOf } from '../settings/flags.ts';

export function migrateCommand(context: CommandContext): Command {
  const command = new Command('migrate').description(
    'migrates the store to the current schema; `serve` does this too',
  );
  return addSettings(command, ['databaseUrl']).action(async (flags: Flags) => {
    const { databaseUrl } = configOf(context, flags);
    const applied = await migrateAndAnnounce(context, databaseUrl, {
      onLogLeft: (left) => reportLogLeft(context, left),
    });
    await printResult(
      context,
      applied.length === 0 ? 'nothing to apply\n' : applied.map((name) => `applied ${name}\n`).join(''),
    );
  });
}
