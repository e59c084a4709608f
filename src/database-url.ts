const RULE =
  'must be sqlite:FILE, such as sqlite:data/plants.db, or postgres://USER:PASSWORD@HOST:PORT/DATABASE';

/** Rule for names: Node replaces bytes that are not UTF-8 by U+FFFD, which would name another file. */
export const NOT_UTF_8 = 'must be UTF-8, without U+FFFD; rename the file';

/** Ending of the name of a file that SQLite or the service may delete, since it lies next to a store with that name. */
export const SIDE_FILE_ENDING = /-(?:wal|shm|journal|service)$/;

/** URLs of SQLite that are rejected. Otherwise, this program would take them for names of files. */
const misleading: readonly (readonly [form: RegExp, rule: string])[] = [
  [
    /^sqlite:\/\//,
    'must be sqlite:FILE without //, such as sqlite:plants.db in the working directory, or sqlite:/var/lib/plants.db',
  ],
  [/^sqlite::memory:/, 'must name a file, such as sqlite:/tmp/plants.db; a store in memory is not supported'],
  [
    /^sqlite:~/,
    'must have an absolute path instead of ~, such as sqlite:/home/alice/plants.db, or sqlite:"$HOME"/plants.db in a shell',
  ],
  [
    SIDE_FILE_ENDING,
    'must not end in -wal, -shm, -journal or -service: SQLite and the service delete files with such names',
  ],
  [/^sqlite:\s|\s$/, 'must not begin or end with a space'],
  [/^sqlite:file:/, 'must be sqlite:FILE without file:, such as sqlite:plants.db'],
  [/\ufffd/, NOT_UTF_8],
  [/^sqlite:.*\?/s, 'must be sqlite:FILE, without ? and parameters: they are not supported'],
];

const POSTGRES_RULE =
  'must be postgres://USER:PASSWORD@HOST:PORT/DATABASE; in USER and PASSWORD, keep letters, digits and -._~ and percent-encode all else, such as # as %23';

/**
 * TLS options of the PostgreSQL driver, each with its values; with none, any text. All else is rejected: the driver would
 * ignore an unknown or empty option, so a typing error in `sslmode` would disable TLS, and throw on other values of `ssl`.
 */
const TLS_OPTIONS: Readonly<Record<string, readonly string[]>> = {
  ssl: ['true', '1', 'no-verify', '0'],
  sslmode: [],
  sslrootcert: [],
  sslcert: [],
  sslkey: [],
  sslnegotiation: [],
};

/**
 * Returns the rule that a database URL breaks, such as "must name a file". In messages, this text follows the
 * name of the flag, variable or argument. Returns undefined for a valid URL.
 */
export function brokenRuleOf(url: string): string | undefined {
  if (/[\r\n]/.test(url)) return 'must be one line, without a line break';
  if (!/^(?:sqlite:.|postgres(?:ql)?:\/\/.)/s.test(url)) return RULE;
  if (sqliteFile(url) === undefined) return brokenRuleOfPostgres(url);
  return misleading.find(([form]) => form.test(url))?.[1];
}

/** Values of PGSSLMODE that the driver knows. It would take any other one for plain text. */
const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full', 'no-verify'];

/** Returns the rule that a valid database URL breaks since it leaves TLS to the variable PGSSLMODE, and that one is unknown. */
export function brokenRuleOfSslMode(
  url: string,
  { PGSSLMODE: mode }: Readonly<Record<string, string | undefined>>,
): string | undefined {
  if (!mode || SSL_MODES.includes(mode)) return undefined;
  if (sqliteFile(url) !== undefined || setsTls(optionsOf(url))) return undefined;
  return `must have the option sslmode, since PGSSLMODE is ${JSON.stringify(mode)}, not one of ${SSL_MODES.join(', ')}`;
}

/** Matches a host on this machine, with or without a port, and a folder of Unix sockets. */
const LOCAL_HOST = /^(?:(?:localhost|127(?:\.[0-9]+){3}|\[?::1\]?)(?::[0-9]*)?$|\/)/i;

/**
 * Returns true if a valid database URL leads to another machine without TLS, and neither it nor PGSSLMODE asks for plain
 * text. What the URL leaves out comes from the variables.
 */
export function isPlainByDefault(
  url: string,
  { PGHOST: usualHost, PGSSLMODE: mode }: Readonly<Record<string, string | undefined>>,
): boolean {
  const options = optionsOf(url);
  if (mode || sqliteFile(url) !== undefined || setsTls(options)) return false;
  const [, authority = ''] = /^[a-z]+:\/\/([^/?]*)/s.exec(url) ?? [];
  const option = options.getAll('host').at(-1);
  const hosts = authority.slice(authority.lastIndexOf('@') + 1).split(',');
  return hosts.some(
    (host) => !LOCAL_HOST.test(option || host.replace(/%2f/gi, '/') || usualHost || 'localhost'),
  );
}

/** Returns the part of a URL after its first `?`. */
function queryOf(url: string): string {
  return url.split('?').slice(1).join('?');
}

function optionsOf(url: string): URLSearchParams {
  return new URLSearchParams(queryOf(url));
}

/** Returns true if the driver decides by these options whether to use TLS. */
function setsTls(options: URLSearchParams): boolean {
  const names = Object.keys(TLS_OPTIONS).filter((name) => name !== 'sslnegotiation');
  return names.some((name) => options.has(name)) || options.get('sslnegotiation') === 'direct';
}

function brokenRuleOfPostgres(url: string): string | undefined {
  if (!isPostgresUrl(url)) return POSTGRES_RULE;
  const query = queryOf(url);
  const options = optionsOf(url);
  for (const name of options.keys()) {
    const rule = /^ssl/i.test(name) ? brokenRuleOfTls(name, options.getAll(name)) : undefined;
    if (rule !== undefined) return rule;
  }
  // The driver decodes names, so an encoded `password` would work, but would not be hidden.
  const names = query.split('&').map((option) => option.split('=', 1).join());
  if (names.every((name) => /^\w*$/.test(name))) return undefined;
  return 'must have only letters, digits and _ in the names of its options';
}

function brokenRuleOfTls(name: string, given: readonly string[]): string | undefined {
  const values = TLS_OPTIONS[name];
  if (values === undefined)
    return `must not have the option ${name}, which has no effect; the TLS options are ${Object.keys(TLS_OPTIONS).join(', ')}`;
  const [value = ''] = given;
  const isValid = values.length === 0 ? value !== '' : values.includes(value);
  if (given.length === 1 && isValid) return undefined;
  const form = values.length === 0 ? 'with a value' : `as one of ${values.join(', ')}`;
  return `must have the option ${name} once, ${form}, not as ${given.map((text) => JSON.stringify(text)).join(' and ')}`;
}

// Returns false if a host or port is invalid, or if the URL contains `#`. An unencoded `/` or `?` in a user or password
// ends the authority early: an `@` then follows in the path, or in the name of an option.
function isPostgresUrl(url: string): boolean {
  const [, authority = '', path = ''] = /^[a-z]+:\/\/([^/?]*)(\/[^?]*|\?[^=]*)?/s.exec(url) ?? [];
  const hosts = authority.slice(authority.lastIndexOf('@') + 1).split(',');
  const isValid = hosts.every((host) => host === '' || URL.canParse(`postgres://${host}`));
  return isValid && !url.includes('#') && !path.includes('@');
}

/** Returns the file of a SQLite URL; undefined for a PostgreSQL URL. */
export function sqliteFile(url: string): string | undefined {
  return /^sqlite:(.+)$/s.exec(url)?.[1];
}

/**
 * Returns where a store is, to show in logs and messages: a path, or a URL without its password.
 */
export function displayUrl(url: string): string {
  const file = sqliteFile(url);
  return file === undefined ? withHiddenPassword(url) : file;
}

// A password may contain unencoded characters, so the text up to the last `@` before the options is hidden.
function withHiddenPassword(url: string): string {
  return url
    .replace(/^([a-z]+:\/\/[^:/?]*):(?:(?!\?\w+=).)*@/s, '$1:***@')
    .replace(/([?&]password=)[^&]*/gi, '$1***');
}

/**
 * Returns the URL of a PostgreSQL database without its password, to use as the argument of a program. Encodes each `@` of
 * the user: libpq takes the first one for the end of the user (conninfo_uri_parse_options).
 */
export function withoutPassword(url: string): string {
  return withHiddenPassword(url)
    .replace(/[^/]*(?=:\*\*\*@)/, (user) => user.replaceAll('@', '%40'))
    .replace(':***@', '@')
    .replace(/([?&])password=\*\*\*&?/g, '$1')
    .replace(/[?&]$/, '');
}
