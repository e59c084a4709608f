import { isIP } from 'node:net';
import { type Static, Type } from 'typebox';
import { demandOfDatabaseUrl } from './database-url.ts';
import { compileCheck, compileFromText, propertyOf } from './validation.ts';

const KIBIBYTE = 1024;
const MEBIBYTE = 1024 * KIBIBYTE;

const port = (description: string, fallback: number) =>
  Type.Integer({ minimum: 0, maximum: 65_535, default: fallback, description });

const address = (description: string) =>
  Type.Refine(
    Type.String({ default: '127.0.0.1', description }),
    (host) => /^[0-9A-Za-z_](?:[0-9A-Za-z_.-]*[0-9A-Za-z_])?$|^[0-9A-Fa-f:.]+(?:%[0-9A-Za-z]+)?$/.test(host),
    () => 'must be a host name or an IP address, such as 127.0.0.1 or ::',
  );

const milliseconds = (description: string, [minimum, maximum]: readonly [number, number], fallback: number) =>
  Type.Integer({ minimum, maximum, default: fallback, description: `${description}, in milliseconds` });

/**
 * All settings of the service. The key gives the flag (`--admin-port`) and the variable (`ADMIN_PORT`);
 * flags win over variables, and these over the defaults.
 */
export const Config = Type.Object({
  host: address('address to listen on'),
  port: port('port to listen on; 0 for any free one', 8080),
  adminHost: address('address of the admin listener'),
  adminPort: port('port of /live, /ready and /metrics; 0 for any free one', 8081),
  databaseUrl: Type.Refine(
    Type.String({
      default: 'sqlite:data/plants.db',
      description: 'where the plants are kept: sqlite:FILE or postgres://…',
    }),
    (url) => demandOfDatabaseUrl(url) === undefined,
    (url) => demandOfDatabaseUrl(url) ?? '',
  ),
  databasePoolSize: Type.Integer({
    minimum: 2,
    maximum: 1_000,
    default: 10,
    description: 'connections to PostgreSQL at most',
  }),
  databaseAcquireTimeout: milliseconds('longest wait for a connection to PostgreSQL', [100, 60_000], 2_000),
  databaseStatementTimeout: milliseconds('longest run of a statement on PostgreSQL', [100, 600_000], 5_000),
  databasePrepare: Type.Boolean({
    default: true,
    description: 'prepare statements on PostgreSQL; false behind a pooler in transaction mode that cannot',
  }),
  stopDelay: milliseconds(
    'pause between saying not to be ready and the stop, for a load balancer to see it',
    [0, 60_000],
    0,
  ),
  basePath: Type.Refine(
    Type.String({ default: '', description: 'prefix of every path, such as /v1' }),
    (path) => /^(?:\/[A-Za-z0-9._~-]+)*$/.test(path),
    () => 'must be empty or a path such as /v1, without a slash at its end',
  ),
  bodyLimit: Type.Integer({
    minimum: 1_024,
    maximum: 16 * MEBIBYTE,
    default: 65_536,
    description: 'largest request body, in bytes',
  }),
  oidcIssuer: Type.Refine(
    Type.String({
      default: '',
      description: 'issuer of OpenID Connect whose access tokens count too, a URL',
    }),
    (issuer) => issuer === '' || isIssuer(issuer),
    () =>
      'must be an https URL as tokens have it in `iss`, without query or fragment; http on this machine only',
  ),
  oidcAudience: Type.Refine(
    Type.String({
      default: '',
      description: 'what access tokens of the issuer have in `aud` for this service',
    }),
    (audience) => /^[!-~]{0,255}$/.test(audience),
    () => 'must be up to 255 visible ASCII characters, as tokens have it in `aud`',
  ),
  headerLimit: Type.Integer({
    minimum: 1_024,
    maximum: MEBIBYTE,
    default: 16 * KIBIBYTE,
    description: 'largest request line and headers together, in bytes',
  }),
  uriLimit: Type.Integer({
    minimum: 128,
    maximum: MEBIBYTE,
    default: 8 * KIBIBYTE,
    description: 'longest URI, in characters',
  }),
  headerTimeout: milliseconds(
    'longest time for the headers of a request to arrive',
    [1_000, 600_000],
    10_000,
  ),
  requestTimeout: milliseconds('longest time for a whole request to arrive', [1_000, 3_600_000], 15_000),
  keepAliveTimeout: milliseconds(
    'how long a connection without requests is kept',
    [1_000, 3_600_000],
    65_000,
  ),
  writeTimeout: milliseconds('longest time in which a client reads nothing', [1_000, 3_600_000], 30_000),
  sendBufferLimit: Type.Integer({
    minimum: MEBIBYTE,
    maximum: 65_536 * MEBIBYTE,
    default: 64 * MEBIBYTE,
    description: 'most memory for responses that wait for slow clients, in bytes',
  }),
  maxConnections: Type.Integer({
    minimum: 1,
    maximum: 1_000_000,
    default: 10_000,
    description: 'connections at most; one more is told so and closed',
  }),
  maxInFlight: Type.Integer({
    minimum: 1,
    maximum: 100_000,
    default: 256,
    description: 'requests that ask something of the store at once; one more is refused',
  }),
  tokenRateLimit: Type.Integer({
    minimum: 0,
    maximum: 1_000_000_000,
    default: 0,
    description: 'requests a minute for each token; 0 for any number',
  }),
  refusedTokenLimit: Type.Integer({
    minimum: 0,
    maximum: 1_000_000_000,
    default: 1_000,
    description: 'refused tokens a minute for each address; 0 for any number',
  }),
  trustProxy: Type.Refine(
    Type.String({
      default: '',
      description: 'addresses and networks of proxies whose X-Forwarded-For is believed, with commas between',
    }),
    (list) => list === '' || list.split(',').every(isNetwork),
    () => 'must be IP addresses or networks (from /1 on) with commas between, such as 10.0.0.0/8,::1',
  ),
  corsOrigin: Type.Refine(
    Type.String({
      default: '',
      description: 'origins whose pages may call the service, with commas between; * for any',
    }),
    (list) => list === '' || list === '*' || list.split(',').every(isOrigin),
    () => 'must be * or origins with commas between, such as https://plants.example.org',
  ),
  tlsCert: Type.String({ default: '', description: 'file of the certificate (PEM), to serve HTTPS' }),
  tlsKey: Type.String({ default: '', description: 'file of the key of the certificate (PEM)' }),
  hsts: Type.Integer({
    minimum: 0,
    maximum: 1_000_000_000,
    default: 0,
    description:
      'max-age of Strict-Transport-Security in seconds, for browsers to use HTTPS alone; 0 for none',
  }),
  logLevel: Type.Enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    description: 'least severe lines to log',
  }),
});
export type Config = Readonly<Static<typeof Config>>;
export type Setting = keyof Config;

/** The flags of settings, as they stand on the command line. */
export type Flags = Readonly<Partial<Record<Setting, string>>>;

export const settings = Object.keys(Config.properties) as readonly Setting[];

/** A configuration the service does not start with; the message names the setting. */
export class ConfigInvalid extends Error {
  override readonly name = 'ConfigInvalid';
}

const check = compileCheck(Config);

/** OpenID Connect Discovery 1.0 §3. No more than 255 characters, since it becomes part of owners. */
function isIssuer(text: string): boolean {
  if (!/^https?:\/\/[!-~]{1,247}$/.test(text) || /[?#@]/.test(text) || !URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || /^(?:localhost|127\.0\.0\.1|\[::1\])$/.test(hostname);
}

/** The environment variable of a setting: `ADMIN_PORT` for `adminPort`. */
export function variableOf(setting: Setting): string {
  return setting.replace(/[A-Z]/g, '_$&').toUpperCase();
}

/** The flag of a setting: `--admin-port` for `adminPort`. */
export function flagOf(setting: Setting): string {
  return `--${setting.replace(/[A-Z]/g, '-$&').toLowerCase()}`;
}

/** The configuration that flags and variables give. Throws ConfigInvalid. */
export function loadConfig(flags: Flags, environment: Readonly<Record<string, string | undefined>>): Config {
  const given = settings.map((setting) => givenOf(setting, flags, environment));
  const values = given.map(({ setting, text }) => [
    setting,
    text === undefined ? defaultOf(setting) : compileFromText(propertyOf(Config, setting))(text),
  ]);
  const checked = check(Object.fromEntries(values));
  if ('value' in checked) return Object.freeze(withBothOrNeither(checked.value));
  const { field, demand } = checked.violation;
  const wrong = given.find(({ setting }) => setting === field);
  throw new ConfigInvalid(wrong === undefined ? `${field} ${demand}` : complaintOf(wrong, demand));
}

/** What a setting was given, and where; the text is undefined when it was given nowhere. */
interface Given {
  readonly setting: Setting;
  /** The name of the flag or the variable. */
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
  const variable = variableOf(setting);
  // An empty one is what a compose file or a unit makes of one that is not set.
  return { setting, source: variable, text: environment[variable] || undefined };
}

/** Those whose value may hold a password. */
const secretive: readonly Setting[] = ['databaseUrl', 'oidcIssuer', 'corsOrigin'];

function complaintOf({ setting, source, text }: Given, demand: string): string {
  if (secretive.includes(setting)) return `${source} ${demand}`;
  return `${source} is ${JSON.stringify(text)}; it ${demand}`;
}

/** What is set together or not at all: without an audience, a token that the issuer made for any other service would do. */
const pairs = [
  ['oidcIssuer', 'oidcAudience'],
  ['tlsCert', 'tlsKey'],
] as const satisfies readonly (readonly [Setting, Setting])[];

function withBothOrNeither(config: Config): Config {
  for (const [first, second] of pairs) {
    const [given, missing] = config[first] === '' ? [second, first] : [first, second];
    if (config[given] === '' || config[missing] !== '') continue;
    throw new ConfigInvalid(`${namesOf(missing)} must be set as well, since ${namesOf(given)} is`);
  }
  return config;
}

/** What names a setting on the command line: `--admin-port (ADMIN_PORT)`. */
export function namesOf(setting: Setting): string {
  return `${flagOf(setting)} (${variableOf(setting)})`;
}

/**
 * Whether the standard variables of OpenTelemetry ask for traces: they name an endpoint and do not switch it off.
 * All others of its variables are read by its library. Throws ConfigInvalid for what is not here.
 */
export function wantsTraces(environment: Readonly<Record<string, string | undefined>>): boolean {
  const exporter = environment.OTEL_TRACES_EXPORTER || 'otlp';
  const protocol = environment.OTEL_EXPORTER_OTLP_PROTOCOL || 'http/protobuf';
  const endpoint = environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || environment.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (!endpoint || exporter === 'none' || environment.OTEL_SDK_DISABLED?.toLowerCase() === 'true')
    return false;
  if (exporter !== 'otlp')
    throw new ConfigInvalid(`OTEL_TRACES_EXPORTER is ${JSON.stringify(exporter)}; it must be otlp or none`);
  if (protocol !== 'http/protobuf')
    throw new ConfigInvalid(
      `OTEL_EXPORTER_OTLP_PROTOCOL is ${JSON.stringify(protocol)}; it must be http/protobuf, on port 4318 as a rule`,
    );
  // Its value is not shown: it may hold a password.
  if (!/^https?:/.test(endpoint) || !URL.canParse(endpoint)) {
    const source = environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
      ? 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'
      : 'OTEL_EXPORTER_OTLP_ENDPOINT';
    throw new ConfigInvalid(`${source} must be an http or https URL, such as http://127.0.0.1:4318`);
  }
  return true;
}

/** The value of a setting that neither flag nor variable gives. */
export function defaultOf(setting: Setting): unknown {
  return Reflect.get(Config.properties[setting], 'default');
}

/** What a setting is for, in a few words. */
export function descriptionOf(setting: Setting): string {
  return String(Reflect.get(Config.properties[setting], 'description'));
}

/** The values that a setting takes, where they are numbers or words: `0 to 65535`. */
export function rangeOf(setting: Setting): string | undefined {
  const schema = Config.properties[setting];
  if ('enum' in schema) return schema.enum.join(', ');
  return 'minimum' in schema && 'maximum' in schema ? `${schema.minimum} to ${schema.maximum}` : undefined;
}

/** What a store needs to know of a configuration. */
export function connectionOptions(config: Config) {
  return {
    poolSize: config.databasePoolSize,
    acquireTimeoutMs: config.databaseAcquireTimeout,
    statementTimeoutMs: config.databaseStatementTimeout,
    prepare: config.databasePrepare,
  };
}

function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([0-9A-Fa-f:.]+)(?:\/([0-9]{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0 || bits === undefined) return version !== 0;
  return Number(bits) >= 1 && Number(bits) <= (version === 4 ? 32 : 128);
}

function isOrigin(text: string): boolean {
  return /^https?:/.test(text) && URL.parse(text)?.origin === text;
}

/** The parts of a setting that has commas between them. */
export function partsOf(list: string): readonly string[] {
  return list === '' ? [] : list.split(',');
}

/** What a client may take, of a configuration. */
export function limitsOf(config: Config) {
  return {
    headers: config.headerLimit,
    uri: config.uriLimit,
    body: config.bodyLimit,
    connections: config.maxConnections,
    inFlight: config.maxInFlight,
    tokenRequests: config.tokenRateLimit,
    rejectedTokens: config.refusedTokenLimit,
    unsent: config.sendBufferLimit,
    headersMs: config.headerTimeout,
    requestMs: config.requestTimeout,
    keepAliveMs: config.keepAliveTimeout,
    writeMs: config.writeTimeout,
  };
}
