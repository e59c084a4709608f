import type { Command, Option } from 'commander';
import manifest from '../package.json' with { type: 'json' };
import { errorMeanings } from '../src/api-errors.ts';
import type { CommandContext } from '../src/cli/context.ts';
import { createProgram } from '../src/cli/program.ts';
import { otelVariables } from '../src/cli/settings/otel-variables.ts';
import { defaultOf, flagOf, helpOf, loadConfig, settings, variableOf } from '../src/config.ts';
import { createAdmin } from '../src/http/admin.ts';
import { ConnectionRegistry } from '../src/http/protocol/connection/connection-registry.ts';
import { logTo } from '../src/observability/log.ts';
import { logEvents } from '../src/observability/log-events.ts';
import { createMetrics } from '../src/observability/metrics.ts';
import type { FactTable } from './markdown-table.ts';

/** A command of the program. */
export interface CommandFacts {
  /** Such as `token create`; empty for the program itself. */
  readonly name: string;
  readonly subcommands: readonly string[];
  readonly options: readonly Option[];
}

/** Nothing is run in it. */
const CONTEXT: CommandContext = {
  env: {},
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  cwd: '.',
  signals: process,
  end: () => undefined,
  parentPid: () => 0,
};

/** Lists the program, its commands and their subcommands. */
export async function listCommands(): Promise<readonly CommandFacts[]> {
  const list = (command: Command, name: string): CommandFacts[] => [
    { name, subcommands: command.commands.map((one) => one.name()), options: command.options },
    ...command.commands.flatMap((one) => list(one, `${name} ${one.name()}`.trim())),
  ];
  return list(await createProgram(CONTEXT), '');
}

/** All tables of the pages that repeat facts of the code. */
export async function factTables(): Promise<readonly FactTable[]> {
  return [
    ...settingTables(await listCommands()),
    {
      file: 'docs/errors.md',
      name: 'errors',
      head: ['`error`', 'Meaning'],
      rows: Object.entries(errorMeanings),
      key: 1,
    },
    {
      file: 'docs/operations.md',
      name: 'log lines',
      head: ['`msg`', '`level`', 'Fields', 'Means'],
      rows: Object.entries(logEvents).map(([message, [level, ...fields]]) => [
        code(message),
        level,
        codes(fields),
      ]),
      key: 1,
    },
    {
      file: 'docs/operations.md',
      name: 'metrics',
      head: ['Metric', 'Labels', 'Is'],
      rows: metricRows(),
      key: 1,
    },
    {
      file: 'CONTRIBUTING.md',
      name: 'npm scripts',
      head: ['Command', 'Does'],
      rows: Object.keys(manifest.scripts)
        .filter((name) => name !== 'dependencies' && name !== 'prepack')
        .map((name) => [code(name === 'start' || name === 'test' ? `npm ${name}` : `npm run ${name}`)]),
      key: 1,
    },
  ];
}

const SETTING_HEAD = ['Flag', 'Variable', 'Default', 'Commands', 'Meaning'];

function settingTables(commands: readonly CommandFacts[]): readonly FactTable[] {
  const withFlag = (flag: string): string =>
    codes(
      commands.filter(({ options }) => options.some(({ long }) => long === flag)).map(({ name }) => name),
    );
  const ofGroups = Map.groupBy(settings, (setting) => helpOf(setting).group);
  const groups = [...ofGroups].map(([group, ofGroup]): [string, string[][]] => [
    group,
    ofGroup.map((setting) => [
      code(flagOf(setting)),
      code(variableOf(setting)),
      defaultText(defaultOf(setting)),
      withFlag(flagOf(setting)),
    ]),
  ]);
  const variables = [
    ['DATABASE_URL_FILE', '', withFlag('--database-url')],
    ...['NODE_ENV', 'npm_lifecycle_event'].map((name) => [name, '', code('serve')]),
    ...Object.entries(otelVariables).map(([name, fallback]) => [name, fallback, code('serve')]),
  ].map(([name = '', fallback, where = '']) => ['', code(name), defaultText(fallback), where]);
  const settingFlags = new Set(settings.map(flagOf));
  const options = new Map(
    commands.flatMap((command) => command.options).map((option) => [option.long, option]),
  );
  const others = [...options.values()]
    .filter(({ long }) => long != null && long !== '--version' && !settingFlags.has(long))
    .map((option) => [
      code(option.long ?? ''),
      '',
      option.defaultValue === undefined ? 'off' : defaultText(option.defaultValue),
      withFlag(option.long ?? ''),
    ]);
  return [
    ...groups,
    ['variables without a flag', variables] as const,
    ['single commands', others] as const,
  ].map(([name, rows]) => ({
    file: 'docs/configuration.md',
    name: `settings: ${name}`,
    head: SETTING_HEAD,
    rows,
    key: 2,
  }));
}

/** Registers all metrics, and lists the service's own with their labels. */
function metricRows(): readonly (readonly string[])[] {
  const limits = loadConfig({}, {});
  const metrics = createMetrics({ version: '', engine: 'sqlite', operationIds: [] });
  const connections = new ConnectionRegistry(limits.maxConnections, limits.sendBufferLimit);
  metrics.watchConnections(connections);
  metrics.watchCertificate(() => new Date());
  metrics.watchLog(() => 0);
  metrics.watchKeys();
  metrics.watchExpiringTokens(() => 0);
  metrics.watchStore(() => {
    throw new Error('no scrape happens here');
  });
  const { log } = logTo({ write: () => undefined }, 'silent');
  createAdmin({ registry: metrics.registry, checks: [], limits, connections, log });
  return metrics.registry
    .getMetricsAsArray()
    .filter(({ name }) => name.startsWith('plant_store_'))
    .map((metric) => {
      const labels: unknown = Reflect.get(metric, 'labelNames');
      return [code(metric.name), codes(Array.isArray(labels) ? labels.map(String) : [])];
    });
}

function defaultText(fallback: unknown): string {
  return fallback === '' ? 'empty' : code(String(fallback));
}

function code(text: string): string {
  return `\`${text}\``;
}

function codes(texts: readonly string[]): string {
  return texts.map(code).join(', ');
}
