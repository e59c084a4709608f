import { type Command, Option } from 'commander';
import {
  type Config,
  defaultOf,
  descriptionOf,
  type Flags,
  flagOf,
  loadConfig,
  rangeOf,
  type Setting,
  settings,
  variableOf,
} from '../config.ts';

/** How help shows settings, under the headings of docs/configuration.md: what stands for the value of each. */
const groups: Readonly<Record<string, Partial<Record<Setting, string>>>> = {
  'Listening:': {
    host: 'host',
    port: 'port',
    adminHost: 'host',
    adminPort: 'port',
    basePath: 'path',
    stopDelay: 'ms',
    corsOrigin: 'origins',
    tlsCert: 'file',
    tlsKey: 'file',
    hsts: 'seconds',
  },
  'The store:': {
    databaseUrl: 'url',
    databasePoolSize: 'number',
    databaseAcquireTimeout: 'ms',
    databaseStatementTimeout: 'ms',
    databasePrepare: 'boolean',
  },
  'Limits:': {
    bodyLimit: 'bytes',
    headerLimit: 'bytes',
    uriLimit: 'number',
    headerTimeout: 'ms',
    requestTimeout: 'ms',
    keepAliveTimeout: 'ms',
    writeTimeout: 'ms',
    sendBufferLimit: 'bytes',
    maxConnections: 'number',
    maxInFlight: 'number',
    tokenRateLimit: 'number',
    refusedTokenLimit: 'number',
    trustProxy: 'networks',
  },
  'Identity provider:': { oidcIssuer: 'url', oidcAudience: 'text' },
  'Log:': { logLevel: 'level' },
};

/** Gives a command the flags of some settings, with their ranges, variables and defaults in its help. */
export function addSettings(command: Command, wanted: readonly Setting[] = settings): Command {
  for (const [heading, placeholders] of Object.entries(groups)) {
    for (const setting of wanted) {
      const placeholder = placeholders[setting];
      if (placeholder === undefined) continue;
      const option = new Option(`${flagOf(setting)} <${placeholder}>`, helpOf(setting));
      command.addOption(option.helpGroup(heading));
    }
  }
  return command;
}

function helpOf(setting: Setting): string {
  const fallback = defaultOf(setting);
  const notes = [
    rangeOf(setting),
    `variable: ${variableOf(setting)}`,
    fallback === '' ? undefined : `default: ${JSON.stringify(fallback)}`,
  ];
  return `${descriptionOf(setting)} (${notes.filter((note) => note !== undefined).join(', ')})`;
}

/** The configuration that a command's flags and the environment give. Throws ConfigInvalid. */
export function configOf(flags: Flags): Config {
  return loadConfig(flags, process.env);
}
