import { type Command, Option } from 'commander';
import {
  type Config,
  defaultOf,
  descriptionOf,
  flagOf,
  loadConfig,
  type Setting,
  settings,
  variableOf,
} from '../config.ts';

/** The flags of settings as commander hands them over. */
export type Flags = Readonly<Partial<Record<Setting, string>>>;

/** Gives a command the flags of some settings, with their variables and defaults in its help. */
export function addSettings(command: Command, wanted: readonly Setting[] = settings): Command {
  for (const setting of wanted) {
    const fallback = JSON.stringify(defaultOf(setting));
    const text = `${descriptionOf(setting)} (variable: ${variableOf(setting)}, default: ${fallback})`;
    command.addOption(new Option(`${flagOf(setting)} <value>`, text));
  }
  return command;
}

/** The configuration that a command's flags and the environment give. Throws ConfigInvalid. */
export function configOf(flags: Flags): Config {
  return loadConfig(flags, process.env);
}
