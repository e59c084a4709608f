import { type Command, Option } from 'commander';
import {
  type Config,
  defaultOf,
  type Flags,
  flagOf,
  helpOf,
  loadConfig,
  rangeOf,
  type Setting,
  settings,
  variableOf,
} from '../config.ts';
import { writeMessage } from './message.ts';
import { misspelledVariables } from './misspelled-variables.ts';

/** Adds the flags of settings to a command. Its help shows their ranges, variables and defaults. */
export function addSettings(command: Command, wanted: readonly Setting[] = settings): Command {
  for (const setting of wanted) {
    const { group, placeholder } = helpOf(setting);
    const option = new Option(`${flagOf(setting)} <${placeholder}>`, describe(setting));
    command.addOption(option.helpGroup(`${group}:`));
  }
  return command;
}

function describe(setting: Setting): string {
  const fallback = defaultOf(setting);
  const notes = [
    rangeOf(setting),
    `variable: ${variableOf(setting)}`,
    fallback === '' ? undefined : `default: ${JSON.stringify(fallback)}`,
  ];
  return `${helpOf(setting).description} (${notes.filter((note) => note !== undefined).join(', ')})`;
}

/** Reads the configuration from flags and variables. Warns of variables with a typing error. Throws ConfigInvalid. */
export function configOf(flags: Flags): Config {
  for (const [given, meant] of misspelledVariables(process.env))
    writeMessage(`plant-store: ${given} is not a setting; did you mean ${meant}?`);
  return loadConfig(flags, process.env);
}
