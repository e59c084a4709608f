import { readFileSync } from 'node:fs';
import { brokenRuleOf, brokenRuleOfSslMode } from './database-url.ts';
import { type Static, Type } from './schema.ts';
import { isIssuer, isNetwork, isOrigin } from './setting-formats.ts';
import { messageOf, OperatorError } from './thrown-errors.ts';
import { compileCheck, compileTextParser } from './validation.ts';

const KIBIBYTE = 1024;
const MEBIBYTE = 1024 * KIBIBYTE;

/** Headings of `--help` and docs/configuration.md. Settings of one heading are adjacent in `Config`. */
type HelpGroup = 'Listening' | 'The store' | 'Limits' | 'Identity provider' | 'Log';

/**
 * Builds the help of a setting, for `--help`. `placeholder` describes the value, such as `path` or `bytes`.
 */
const help = (helpGroup: HelpGroup, placeholder: string, description: string) => ({
  helpGroup,
  placeholder,
  description,
});

const integer = (
  shown: ReturnType<typeof help>,
  [minimum, maximum]: readonly [number, number],
  fallback: number,
) => Type.Integer({ minimum, maximum, default: fallback, ...shown });

const port = (description: string, fallback: number) =>
  integer(help('Listening', 'port', description), [0, 65_535], fallback);

const text = (shown: ReturnType<typeof help>, isValid: (value: string) => boolean, rule: string) =>
  Type.Refine(Type.String({ default: '', ...shown }), isValid, () => rule);

const address = (description: string) =>
  Type.Refine(
    Type.String({ default: '127.0.0.1', ...help('Listening', 'host', description) }),
    (host) => /^[0-9A-Za-z_](?:[0-9A-Za-z_.-]*[0-9A-Za-z_])?$|^[0-9A-Fa-f:.]+(?:%[0-9A-Za-z]+)?$/.test(host),
    () => 'must be a host name or an IP address, such as 127.0.0.1 or ::',
  );

const milliseconds = (
  group: HelpGroup,
  description: string,
  range: readonly [number, number],
  fallback: number,
) => integer(help(group, 'ms', `${description}, in milliseconds`), range, fallback);

/**
 * All settings of the service. The setting `adminPort` has the flag `--admin-port` and the variable
 * `ADMIN_PORT`. Flags override variables, and variables override defaults.
 */
export const Config = Type.Object({
  host: address('address to listen on'),
  port: port('port to listen on; 0 picks a free one', 8080),
  adminHost: address('address of the admin listener'),
  adminPort: port('port of /live, /ready and /metrics; 0 picks a free one', 8081),
  stopDelay: milliseconds(
    'Listening',
    'at a stop, how long /ready returns 503 before the listener closes, so that load balancers notice',
    [0, 60_000],
    0,
  ),
  basePath: text(
    help('Listening', 'path', 'prefix of every path, such as /v1'),
    // Clients resolve the parts `.` and `..` before they send a request.
    (path) => /^(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~-]+)*$/.test(path),
    'must be empty or a path such as /v1, of letters, digits and ._~-, without a slash at its end or the parts . and ..',
  ),
  corsOrigin: text(
    help('Listening', 'origins', 'origins whose pages may call the service, comma-separated; * for any'),
    (list) => list === '*' || partsOf(list).every(isOrigin),
    'must be * or comma-separated origins as browsers write them, such as https://plants.example.org: in lower case, without spaces, a slash at the end, a default port, or * in a name',
  ),
  tlsCert: Type.String({
    default: '',
    ...help('Listening', 'file', 'certificate file (PEM), to serve HTTPS'),
  }),
  tlsKey: Type.String({ default: '', ...help('Listening', 'file', 'key file of the certificate (PEM)') }),
  hsts: integer(
    help(
      'Listening',
      'seconds',
      'max-age of Strict-Transport-Security, in seconds, so that browsers use HTTPS only; 0 for no header',
    ),
    [0, 1_000_000_000],
    0,
  ),
  databaseUrl: Type.Refine(
    Type.String({
      default: 'sqlite:data/plants.db',
      ...help('The store', 'url', 'location of the store: sqlite:FILE or postgres://…'),
    }),
    (url) => brokenRuleOf(url) === undefined,
    (url) => brokenRuleOf(String(url)) ?? '',
  ),
  databasePoolSize: integer(help('The store', 'number', 'max connections to PostgreSQL'), [2, 1_000], 10),
  databaseAcquireTimeout: milliseconds(
    'The store',
    'timeout for getting a connection to PostgreSQL',
    [100, 60_000],
    2_000,
  ),
  databaseStatementTimeout: milliseconds(
    'The store',
    'statement timeout on PostgreSQL',
    [100, 600_000],
    5_000,
  ),
  databasePrepare: Type.Boolean({
    default: true,
    ...help(
      'The store',
      'boolean',
      'use prepared statements on PostgreSQL; false behind a pooler that does not support them',
    ),
  }),
  bodyLimit: integer(
    help('Limits', 'bytes', 'max size of a request body, in bytes'),
    [1_024, 16 * MEBIBYTE],
    65_536,
  ),
  headerLimit: integer(
    help('Limits', 'bytes', 'max size of the request line and headers together, in bytes'),
    [1_024, MEBIBYTE],
    16 * KIBIBYTE,
  ),
  uriLimit: integer(
    help('Limits', 'number', 'max length of a URI, in characters'),
    [128, MEBIBYTE],
    8 * KIBIBYTE,
  ),
  headerTimeout: milliseconds(
    'Limits',
    'timeout for receiving the headers of a request',
    [1_000, 600_000],
    10_000,
  ),
  requestTimeout: milliseconds('Limits', 'timeout for receiving a whole request', [1_000, 3_600_000], 15_000),
  keepAliveTimeout: milliseconds(
    'Limits',
    'how long an idle connection stays open',
    [1_000, 3_600_000],
    65_000,
  ),
  writeTimeout: milliseconds(
    'Limits',
    'timeout for a client that reads nothing of its response',
    [1_000, 3_600_000],
    30_000,
  ),
  sendBufferLimit: integer(
    help('Limits', 'bytes', 'max memory for responses to all slow clients together, in bytes'),
    [MEBIBYTE, 65_536 * MEBIBYTE],
    64 * MEBIBYTE,
  ),
  maxConnections: integer(
    help(
      'Limits',
      'number',
      'max open connections; at the limit, those that wait for their clients are closed first, then new ones rejected',
    ),
    [1, 1_000_000],
    10_000,
  ),
  maxInFlight: integer(
    help('Limits', 'number', 'max concurrent reads of the store, and as many writes; 503 above it'),
    [1, 100_000],
    256,
  ),
  tokenRateLimit: integer(
    help('Limits', 'number', 'max requests per minute for each token; 0 for no limit'),
    [0, 1_000_000_000],
    0,
  ),
  refusedTokenLimit: integer(
    help('Limits', 'number', 'max rejected tokens per minute for each address; 0 for no limit'),
    [0, 1_000_000_000],
    1_000,
  ),
  trustProxy: text(
    help('Limits', 'networks', 'proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,::1'),
    (list) => partsOf(list).every(isNetwork),
    'must be comma-separated IP addresses or networks such as 10.0.0.0/8,::1; a /0 network is not allowed',
  ),
  oidcIssuer: text(
    help('Identity provider', 'url', 'URL of an OpenID Connect issuer whose access tokens are accepted too'),
    (issuer) => issuer === '' || isIssuer(issuer),
    'must be the https URL in `iss` of the tokens, up to 255 characters without user, query and fragment; http on loopback only',
  ),
  oidcAudience: text(
    help('Identity provider', 'text', 'audience (`aud`) that access tokens of the issuer must have'),
    (audience) => /^[!-~]{0,255}$/.test(audience),
    'must be the `aud` of the tokens, up to 255 visible ASCII characters',
  ),
  logLevel: Type.Enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    ...help('Log', 'level', 'lowest level to log; audit lines are logged at each but silent'),
  }),
});
export type Config = Readonly<Static<typeof Config>>;
export type Setting = keyof Config;

/** Values of flags, as given on the command line. */
export type Flags = Readonly<Partial<Record<Setting, string>>>;

export const settings = Object.keys(Config.properties) as readonly Setting[];

/** Thrown for an invalid configuration; the message names the setting. */
export class ConfigInvalid extends OperatorError {
  override readonly name = 'ConfigInvalid';
}

const check = compileCheck(Config);

/** Returns the environment variable of a setting: `ADMIN_PORT` for `adminPort`. */
export function variableOf(setting: Setting): string {
  return setting.replace(/[A-Z]/g, '_$&').toUpperCase();
}

/** Returns the flag of a setting: `--admin-port` for `adminPort`. */
export function flagOf(setting: Setting): string {
  return `--${setting.replace(/[A-Z]/g, '-$&').toLowerCase()}`;
}

/** Reads the configuration from flags and variables. Throws ConfigInvalid. */
export function loadConfig(flags: Flags, environment: Readonly<Record<string, string | undefined>>): Config {
  const given = settings.map((setting) => givenOf(setting, flags, environment));
  const values = given.map(({ setting, text }) => [
    setting,
    text === undefined ? defaultOf(setting) : compileTextParser(Config.properties[setting])(text),
  ]);
  const checked = check(Object.fromEntries(values));
  if ('value' in checked) {
    const rule = brokenRuleOfSslMode(checked.value.databaseUrl, environment);
    if (rule !== undefined) throw new ConfigInvalid(`${namesOf('databaseUrl')} ${rule}`);
    checkPairs(checked.value);
    checkUriLimits(checked.value);
    return Object.freeze(checked.value);
  }
  const { field, rule } = checked.violation;
  const invalid = given.find(({ setting }) => setting === field);
  throw new ConfigInvalid(invalid === undefined ? `${field} ${rule}` : describeInvalid(invalid, rule));
}

/** The text given for a setting, and its source. The text is undefined if none was given. */
interface Given {
  readonly setting: Setting;
  /** Name of the flag or variable that gave the text. */
  readonly source: string;
  readonly text: string | undefined;
}

function givenOf(
  setting: Setting,
  flags: Flags,
  environment: Readonly<Record<string, string | undefined>>,
): Given {
  const flag = flags[setting];
  if (flag !== undefined) return { setting, source: flagOf(setting), text: flag };
  const file = setting === 'databaseUrl' ? environment.DATABASE_URL_FILE : undefined;
  if (file) return { setting, source: 'DATABASE_URL_FILE', text: readUrl(file) };
  const variable = variableOf(setting);
  // An empty variable counts as unset: Compose files and systemd units pass unset variables as empty.
  return { setting, source: variable, text: environment[variable] || undefined };
}

/** Reads the database URL, without its final line breaks, from the file that DATABASE_URL_FILE names. */
function readUrl(file: string): string {
  if (file.includes('://')) throw new ConfigInvalid('DATABASE_URL_FILE must name a file, not be a URL');
  try {
    return readFileSync(file, 'utf8').replace(/[\r\n]+$/, '');
  } catch (error: unknown) {
    throw new ConfigInvalid(`DATABASE_URL_FILE must name a readable file: ${messageOf(error)}`);
  }
}

/** Settings whose value may hold a password; error messages leave the value out. */
const withPassword: readonly Setting[] = ['databaseUrl', 'oidcIssuer', 'corsOrigin'];

function describeInvalid({ setting, source, text }: Given, rule: string): string {
  if (withPassword.includes(setting)) return `${source} ${rule}`;
  return `${source} is ${JSON.stringify(text)}; it ${rule}`;
}

/**
 * Pairs of settings that must be set together. For example, with an issuer but no audience, the service would
 * accept JWTs made for other services.
 */
const pairs = [
  ['oidcIssuer', 'oidcAudience'],
  ['tlsCert', 'tlsKey'],
] as const satisfies readonly (readonly [Setting, Setting])[];

function checkPairs(config: Config): void {
  for (const [first, second] of pairs) {
    const [given, missing] = config[first] === '' ? [second, first] : [first, second];
    if (config[given] === '' || config[missing] !== '') continue;
    throw new ConfigInvalid(`${namesOf(missing)} must be set too, since ${namesOf(given)} is set`);
  }
}

/** Max characters of a link to the next page, without the base path: int32 `limit`, and a cursor of 16 characters. */
const MAX_LINK_LENGTH = '/plants?limit=2147483647&cursor='.length + 16;

/** Bytes for the rest of the request line, and for `Host`, `Authorization` and some other headers. */
const OTHER_HEADER_BYTES = 512;

function checkUriLimits({ basePath, uriLimit, headerLimit }: Config): void {
  const needed = basePath.length + MAX_LINK_LENGTH;
  if (uriLimit < needed)
    throw new ConfigInvalid(
      `${namesOf('uriLimit')} must be ${needed} or more: with this ${namesOf('basePath')}, a link to the next page of a list can have as many characters`,
    );
  if (headerLimit < needed + OTHER_HEADER_BYTES)
    throw new ConfigInvalid(
      `${namesOf('headerLimit')} must be ${needed + OTHER_HEADER_BYTES} or more: with this ${namesOf('basePath')}, the headers of a request for the next page of a list can have as many bytes`,
    );
}

/** Settings with a comma-separated list. A repeated flag adds to the list. */
export const listSettings: readonly Setting[] = ['corsOrigin', 'trustProxy'];

/** Returns the flag and the variable of a setting, for messages: `--admin-port (ADMIN_PORT)`. */
export function namesOf(setting: Setting): string {
  return `${flagOf(setting)} (${variableOf(setting)})`;
}

export function defaultOf(setting: Setting): unknown {
  return Reflect.get(Config.properties[setting], 'default');
}

/** Returns the help of a setting: its heading, the placeholder for its value, and its description. */
export function helpOf(setting: Setting) {
  const schema = Config.properties[setting];
  return {
    group: String(Reflect.get(schema, 'helpGroup')),
    placeholder: String(Reflect.get(schema, 'placeholder')),
    description: String(Reflect.get(schema, 'description')),
  };
}

/** Returns the valid values of a number or an enum, such as `0 to 65535`; undefined for other types. */
export function rangeOf(setting: Setting): string | undefined {
  const schema = Config.properties[setting];
  if ('enum' in schema) return schema.enum.join(', ');
  return 'minimum' in schema && 'maximum' in schema ? `${schema.minimum} to ${schema.maximum}` : undefined;
}

/** Returns the settings for connections to PostgreSQL. */
export function connectionOptions(config: Config) {
  return {
    poolSize: config.databasePoolSize,
    acquireTimeoutMs: config.databaseAcquireTimeout,
    statementTimeoutMs: config.databaseStatementTimeout,
    prepare: config.databasePrepare,
  };
}

/** Splits a comma-separated setting into its items. */
export function partsOf(list: string): readonly string[] {
  return list === '' ? [] : list.split(',');
}
