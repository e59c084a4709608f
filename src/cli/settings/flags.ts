import { type Command, Option } from 'commander';
import {
  type Config,
  defaultOf,
  type Flags,
  flagOf,
  helpOf,
  listSettings,
  loadConfig,
  rangeOf,
  type Setting,
  settings,
  variableOf,
} from '../../config.ts';
import { sqliteFile } from '../../database-url.ts';
import { absolutePath, type CommandContext } from '../context.ts';
import { writeMessage } from '../message.ts';
import { flagsTakenByNpm, misspelledVariables } from './environment-variables.ts';

/**
 * Adds the flags of settings to a command. The help shows the range, variable and default of each setting.
 */
export function addSettings(command: Command, wanted: readonly Setting[] = settings): Command {
  for (const setting of wanted) {
    const { group, placeholder } = helpOf(setting);
    const option = new Option(`${flagOf(setting)} <${placeholder}>`, describe(setting));
    if (listSettings.includes(setting)) option.argParser(addToList);
    command.addOption(option.helpGroup(`${group}:`));
  }
  return command;
}

/** Adds to the list of an earlier flag; an empty text resets it. */
function addToList(text: string, earlier: unknown): string {
  return typeof earlier === 'string' && earlier !== '' && text !== '' ? `${earlier},${text}` : text;
}

function describe(setting: Setting): string {
  const fallback = defaultOf(setting);
  const notes = [
    rangeOf(setting),
    listSettings.includes(setting) ? 'may be repeated' : undefined,
    `variable: ${variableOf(setting)}`,
    fallback === '' ? undefined : `default: ${JSON.stringify(fallback)}`,
  ];
  return `${helpOf(setting).description} (${notes.filter((note) => note !== undefined).join(', ')})`;
}

/** Warns about flags that went to npm, and about environment variables whose names look like a misspelled setting. */
export function warnOfLostSettings({ env, stderr }: CommandContext): void {
  for (const flag of flagsTakenByNpm(env))
    writeMessage(
      stderr,
      `plant-store: ${flag} went to npm and has no effect; put flags after --, as in npm start -- ${flag} …`,
    );
  for (const [given, meant] of misspelledVariables(env))
    writeMessage(stderr, `plant-store: ${given} is not a setting; did you mean ${meant}?`);
}

/**
 * Reads the configuration from a command's flags and the environment. Makes file paths absolute. Throws
 * ConfigInvalid.
 */
export function configOf(context: CommandContext, flags: Flags): Config {
  const config = loadConfig(flags, context.env);
  const pathOf = (file: string): string => (file === '' ? '' : absolutePath(context, file));
  return {
    ...config,
    databaseUrl: absoluteUrl(context, config.databaseUrl),
    tlsCert: pathOf(config.tlsCert),
    tlsKey: pathOf(config.tlsKey),
  };
}

/** Returns the URL of a store; the path of an embedded store becomes absolute. */
export function absoluteUrl(context: CommandContext, url: string): string {
  const file = sqliteFile(url);
  return file === undefined ? url : `sqlite:${absolutePath(context, file)}`;
}
