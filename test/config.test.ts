import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  ConfigInvalid,
  defaultOf,
  flagOf,
  helpOf,
  loadConfig,
  type Setting,
  settings,
  variableOf,
} from '../src/config.ts';
import { isPlainByDefault } from '../src/database-url.ts';
import { encodeCursor } from '../src/http/plants/cursor.ts';
import { INT64_MAX } from '../src/plant.ts';
import { freshFolder } from './support/engines.ts';

interface Values {
  readonly good: readonly (readonly [text: string, value: unknown])[];
  readonly bad: readonly string[];
  /** Other settings that are required too. */
  readonly others?: Partial<Record<Setting, string>>;
}

/** Settings whose values no message shows: they may contain a password. */
const secretive: readonly Setting[] = ['databaseUrl', 'oidcIssuer', 'corsOrigin'];

const integers = [
  '',
  ' ',
  '-1',
  '+80',
  '080',
  '1.5',
  '80.0',
  '8e1',
  '0x50',
  '80 ',
  'http',
  'NaN',
  '99999999999999999999',
];
const port: Values = {
  good: [
    ['0', 0],
    ['80', 80],
    ['65535', 65_535],
  ],
  bad: [...integers, '65536'],
};
const host: Values = {
  good: [
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['0.0.0.0', '0.0.0.0'],
    ['localhost', 'localhost'],
  ],
  // An empty one would mean every address.
  bad: [''],
};

const rate: Values = {
  good: [
    ['0', 0],
    ['600', 600],
  ],
  bad: [...integers, '1000000001', '10/s'],
};
// Its content is checked when it is read.
const file: Values = {
  good: [
    ['tls.pem', 'tls.pem'],
    ['/etc/tls/plants.pem', '/etc/tls/plants.pem'],
  ],
  bad: [],
};

/** Valid texts of each setting with their values, and invalid texts. */
const values: Readonly<Record<Setting, Values>> = {
  host,
  adminHost: host,
  port,
  adminPort: port,
  databaseUrl: {
    good: [
      ['sqlite:plants.db', 'sqlite:plants.db'],
      ['sqlite:/var/lib/plant store/plants.db', 'sqlite:/var/lib/plant store/plants.db'],
      ['postgres://u:p@a:5432,b/plants?sslmode=require', 'postgres://u:p@a:5432,b/plants?sslmode=require'],
      ['postgresql://localhost/plants', 'postgresql://localhost/plants'],
    ],
    bad: [
      '',
      'sqlite:',
      'plants.db',
      'SQLITE:plants.db',
      ' sqlite:plants.db',
      'mysql://h/plants',
      'postgres://',
      'sqlite::memory:',
      'sqlite:~/plants.db',
      'sqlite:plants.db?mode=ro',
      'sqlite://plants.db',
      'sqlite:///var/lib/plants.db',
      'sqlite:plants.db-wal',
      'sqlite:plants.db-service',
      'sqlite:plants.db ',
    ],
  },
  databasePoolSize: {
    good: [
      ['10', 10],
      ['2', 2],
    ],
    bad: [...integers, '1', '1001'],
  },
  databaseAcquireTimeout: {
    good: [
      ['2000', 2_000],
      ['100', 100],
    ],
    bad: [...integers, '99', '60001', '2s'],
  },
  databaseStatementTimeout: {
    good: [
      ['5000', 5_000],
      ['100', 100],
    ],
    bad: [...integers, '99', '600001', '5s'],
  },
  databasePrepare: {
    good: [
      ['true', true],
      ['false', false],
    ],
    bad: ['', 'yes', '1', 'TRUE'],
  },
  stopDelay: {
    good: [
      ['0', 0],
      ['2000', 2_000],
    ],
    bad: [...integers, '60001', '2s'],
  },
  basePath: {
    good: [
      ['', ''],
      ['/v1', '/v1'],
      ['/api/v1.0/plant-store_~', '/api/v1.0/plant-store_~'],
      ['/.well-known/..a/...', '/.well-known/..a/...'],
    ],
    bad: [
      ...['/', 'v1', '/v1/', '//', '/v1//v2', '/v 1', '/v1?x', '/v1#x', '/:id', '/*', '/é', '/%20', '/v1\n'],
      ...['/.', '/..', '/a/..', '/../a', '/a/./b'],
    ],
  },
  bodyLimit: {
    good: [
      ['1024', 1_024],
      ['65536', 65_536],
      ['16777216', 16 * 1024 * 1024],
    ],
    bad: [...integers, '1023', '16777217', '64k', '64 KiB'],
  },
  oidcIssuer: {
    good: [
      ['https://id.example', 'https://id.example'],
      ['https://id.example/', 'https://id.example/'],
      ['https://id.example:8443/realms/plants', 'https://id.example:8443/realms/plants'],
      ['http://localhost:9000', 'http://localhost:9000'],
      ['http://127.0.0.1:9000', 'http://127.0.0.1:9000'],
      ['http://[::1]:9000', 'http://[::1]:9000'],
    ],
    bad: [
      'id.example',
      'http://id.example',
      'http://localhost.id.example',
      'ftp://id.example',
      'https://',
      'https://id.example?x=1',
      'https://id.example#x',
      'https://user:password@id.example',
      ' https://id.example',
      'https://id.example/\n',
      `https://id.example/${'x'.repeat(240)}`,
    ],
    others: { oidcAudience: 'plants' },
  },
  oidcAudience: {
    good: [
      ['plants', 'plants'],
      ['https://plants.example/', 'https://plants.example/'],
    ],
    bad: ['plants store', 'plants\n', 'plänts', 'x'.repeat(256)],
    others: { oidcIssuer: 'https://id.example' },
  },
  headerLimit: {
    good: [
      ['1024', 1_024],
      ['16384', 16_384],
    ],
    bad: [...integers, '1023', '1048577', '16k'],
  },
  uriLimit: {
    good: [
      ['128', 128],
      ['8192', 8_192],
    ],
    bad: [...integers, '127', '1048577'],
  },
  headerTimeout: {
    good: [
      ['1000', 1_000],
      ['10000', 10_000],
    ],
    bad: [...integers, '999', '600001', '10s'],
  },
  requestTimeout: {
    good: [
      ['1000', 1_000],
      ['15000', 15_000],
    ],
    bad: [...integers, '999', '3600001', '15s'],
  },
  keepAliveTimeout: {
    good: [
      ['1000', 1_000],
      ['65000', 65_000],
    ],
    bad: [...integers, '999', '3600001', '65s'],
  },
  writeTimeout: {
    good: [
      ['1000', 1_000],
      ['30000', 30_000],
    ],
    bad: [...integers, '999', '3600001', '30s'],
  },
  sendBufferLimit: {
    good: [
      ['1048576', 1_048_576],
      ['67108864', 67_108_864],
    ],
    bad: [...integers, '1048575', '64MiB'],
  },
  maxConnections: {
    good: [
      ['1', 1],
      ['10000', 10_000],
    ],
    bad: [...integers, '0', '1000001'],
  },
  maxInFlight: {
    good: [
      ['1', 1],
      ['256', 256],
    ],
    bad: [...integers, '0', '100001'],
  },
  tokenRateLimit: rate,
  refusedTokenLimit: rate,
  trustProxy: {
    good: [
      ['127.0.0.1', '127.0.0.1'],
      ['10.0.0.0/8,::1,2001:db8::/32', '10.0.0.0/8,::1,2001:db8::/32'],
      ['::ffff:10.0.0.0/104', '::ffff:10.0.0.0/104'],
    ],
    bad: [
      'true',
      '*',
      'proxy',
      '10.0.0.0/33',
      '10.0.0',
      '::1/129',
      '0.0.0.0/0',
      '::/00',
      '::ffff:0:0/96',
      '0:0:0:0:0:ffff:10.0.0.0/96',
      '10.0.0.1, 10.0.0.2',
      ',',
    ],
  },
  corsOrigin: {
    good: [
      ['*', '*'],
      ['https://a.example,http://localhost:5173', 'https://a.example,http://localhost:5173'],
    ],
    bad: [
      'null',
      'a.example',
      'https://a.example/',
      'https://A.example',
      '*,https://a.example',
      'https://*.example/x',
      'https://*.example',
      'https://a.example:443',
      'https://a.example, https://b.example',
    ],
  },
  tlsCert: { ...file, others: { tlsKey: 'tls.key' } },
  tlsKey: { ...file, others: { tlsCert: 'tls.pem' } },
  hsts: rate,
  logLevel: {
    good: ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'].map(
      (level) => [level, level] as const,
    ),
    bad: ['', 'INFO', 'verbose', '30', 'info '],
  },
};

describe('a configuration', () => {
  test('has the default of every setting where nothing is given', () => {
    assert.deepEqual(loadConfig({}, {}), {
      host: '127.0.0.1',
      port: 8080,
      adminHost: '127.0.0.1',
      adminPort: 8081,
      databaseUrl: 'sqlite:data/plants.db',
      databasePoolSize: 10,
      databaseAcquireTimeout: 2_000,
      databaseStatementTimeout: 5_000,
      databasePrepare: true,
      stopDelay: 0,
      basePath: '',
      bodyLimit: 65_536,
      oidcIssuer: '',
      oidcAudience: '',
      headerLimit: 16_384,
      uriLimit: 8_192,
      headerTimeout: 10_000,
      requestTimeout: 15_000,
      keepAliveTimeout: 65_000,
      writeTimeout: 30_000,
      sendBufferLimit: 67_108_864,
      maxConnections: 10_000,
      maxInFlight: 256,
      tokenRateLimit: 0,
      refusedTokenLimit: 1_000,
      trustProxy: '',
      corsOrigin: '',
      tlsCert: '',
      tlsKey: '',
      hsts: 0,
      logLevel: 'info',
    });
    for (const setting of settings) assert.equal(loadConfig({}, {})[setting], defaultOf(setting));
  });

  test('is frozen', () => {
    const config = loadConfig({}, {});
    assert.ok(Object.isFrozen(config));
    assert.throws(() => Object.assign(config, { port: 1 }), TypeError);
  });

  test('takes nothing from variables that are not its own', () => {
    const others = {
      PATH: '/bin',
      NODE_ENV: 'production',
      port: '1',
      Port: '2',
      PLANT_STORE_PORT: '3',
      ADMINPORT: '4',
    };
    assert.deepEqual(loadConfig({}, others), loadConfig({}, {}));
  });

  test('has an issuer and its audience together, or neither', () => {
    assert.throws(
      () => loadConfig({ oidcIssuer: 'https://id.example' }, {}),
      new ConfigInvalid(
        '--oidc-audience (OIDC_AUDIENCE) must be set too, since --oidc-issuer (OIDC_ISSUER) is set',
      ),
    );
    assert.throws(
      () => loadConfig({}, { OIDC_AUDIENCE: 'plants', OIDC_ISSUER: '' }),
      new ConfigInvalid(
        '--oidc-issuer (OIDC_ISSUER) must be set too, since --oidc-audience (OIDC_AUDIENCE) is set',
      ),
    );
  });

  test('has a certificate and its key together, or neither', () => {
    const { tlsCert, tlsKey } = loadConfig({ tlsCert: '', tlsKey: '' }, {});
    assert.deepEqual({ tlsCert, tlsKey }, { tlsCert: '', tlsKey: '' });
    assert.throws(
      () => loadConfig({ tlsCert: 'tls.pem' }, {}),
      new ConfigInvalid('--tls-key (TLS_KEY) must be set too, since --tls-cert (TLS_CERT) is set'),
    );
    assert.throws(
      () => loadConfig({ tlsKey: 'tls.key' }, {}),
      new ConfigInvalid('--tls-cert (TLS_CERT) must be set too, since --tls-key (TLS_KEY) is set'),
    );
  });

  test('has a URI limit that the longest link to a next page does not exceed', () => {
    const link = `/plants?limit=2147483647&cursor=${encodeCursor(INT64_MAX)}`;
    const basePath = '/x'.repeat(95);
    const needed = basePath.length + link.length;
    assert.equal(loadConfig({ basePath, uriLimit: String(needed) }, {}).uriLimit, needed);
    assert.throws(
      () => loadConfig({ basePath, uriLimit: String(needed - 1) }, {}),
      new ConfigInvalid(
        `--uri-limit (URI_LIMIT) must be ${needed} or more: with this --base-path (BASE_PATH), a link to the next page of a list can have as many characters`,
      ),
    );
  });

  test('has a header limit that the headers with such a link do not exceed', () => {
    const basePath = '/x'.repeat(500);
    const limits = { basePath, uriLimit: '8192', headerLimit: '1024' };
    assert.throws(
      () => loadConfig(limits, {}),
      /^ConfigInvalid: --header-limit \(HEADER_LIMIT\) must be 1\d{3} or more: with this --base-path /,
    );
    assert.equal(loadConfig({ ...limits, headerLimit: '2048' }, {}).headerLimit, 2_048);
  });

  test('database URL from the file in DATABASE_URL_FILE → wins over the variable, not over the flag', async () => {
    const file = join(await freshFolder(), 'database-url');
    await writeFile(file, 'postgres://u:secret@h/d\r\n\n');
    const variables = { DATABASE_URL: 'sqlite:other.db', DATABASE_URL_FILE: file };
    assert.equal(loadConfig({}, variables).databaseUrl, 'postgres://u:secret@h/d');
    assert.equal(loadConfig({ databaseUrl: 'sqlite:a.db' }, variables).databaseUrl, 'sqlite:a.db');
    const unset = { ...variables, DATABASE_URL_FILE: '' };
    assert.equal(loadConfig({}, unset).databaseUrl, 'sqlite:other.db');
  });

  test('DATABASE_URL_FILE names no file, or one without a valid URL → ConfigInvalid', async () => {
    const file = join(await freshFolder(), 'database-url');
    assert.throws(
      () => loadConfig({}, { DATABASE_URL_FILE: file }),
      new ConfigInvalid(
        `DATABASE_URL_FILE must name a readable file: ENOENT: no such file or directory, open '${file}'`,
      ),
    );
    for (const text of ['', 'mysql://u:secret@h/d']) {
      await writeFile(file, text);
      assert.throws(
        () => loadConfig({}, { DATABASE_URL_FILE: file }),
        (error) =>
          error instanceof ConfigInvalid &&
          /^DATABASE_URL_FILE must be sqlite:FILE[^']*$/.test(error.message),
      );
    }
  });

  test('never shows a value that may hold a password', () => {
    for (const [flags, message] of [
      [{ databaseUrl: 'mysql://u:secret@h/d' }, /^--database-url must be sqlite:FILE/],
      [{ oidcIssuer: 'https://u:secret@h' }, /^--oidc-issuer must be /],
      [{ corsOrigin: 'https://u:secret@h' }, /^--cors-origin must be /],
    ] as const)
      assert.throws(
        () => loadConfig(flags, {}),
        (error) =>
          error instanceof ConfigInvalid && message.test(error.message) && !error.message.includes('secret'),
      );
  });

  test('says what a password needs that breaks its URL, and does not show it', () => {
    for (const databaseUrl of [
      'postgres://u:sec#ret@h/d',
      'postgres://u:12#secret@h/d',
      'postgres://u:sec/ret@h/d',
      'postgres://u:sec?ret@h/d',
      'postgres://u:secret@h:port/d',
      'postgres://u:secret@h:5432,i:65536/d',
      'postgres://u:x@secret/y@h/d',
      'postgres://u:12,secret/y@h/d',
      'postgres://u:12/secret@h/d',
      'postgres://u:12?secret@h/d',
      'postgres://us/er:secret@h/d',
    ])
      assert.throws(
        () => loadConfig({ databaseUrl }, {}),
        new ConfigInvalid(
          '--database-url must be postgres://USER:PASSWORD@HOST:PORT/DATABASE; in USER and PASSWORD, keep letters, digits and -._~ and percent-encode all else, such as # as %23',
        ),
      );
    for (const databaseUrl of [
      'postgres://u:p%23%2F%3F%40@h/d',
      'postgres://u:p@ss@h/d',
      'postgres://u:p@[::1]:5432,h/d?sslmode=require',
      'postgres://u:p@/d?host=/var/run/postgresql',
      'postgres:///d',
    ])
      assert.equal(loadConfig({ databaseUrl }, {}).databaseUrl, databaseUrl);
  });

  test('says what would name a store, for a typing error and for what has another meaning elsewhere', () => {
    for (const [databaseUrl, rule] of [
      ['sqlite::memory:', /must name a file/],
      ['sqlite:~/plants.db', /must have an absolute path instead of ~/],
      ['sqlite:plants.db?mode=ro', /without \?/],
      ['sqlite://plants.db', /must be sqlite:FILE without \/\//],
      ['sqlite:plants.db-journal', /must not end in .*-journal/],
      ['sqlite:plants.db\t', /must not begin or end with a space/],
      ['sqlite: plants.db', /must not begin or end with a space/],
      ['sqlite:file:plants.db', /without file:/],
      ['sqlite:a.db\nsqlite:b.db', /must be one line/],
      ['postgres://a/b\rpostgres://c/d', /must be one line/],
      ['sqlite:plants\ufffd.db', /must be UTF-8/],
    ] as const)
      assert.throws(() => loadConfig({ databaseUrl }, {}), rule);
  });

  test('rejects an encoded name of an option, which would show a password', () => {
    for (const option of ['pass%77ord', '+password'])
      assert.throws(
        () => loadConfig({ databaseUrl: `postgres://h/d?user=u&${option}=secret` }, {}),
        new ConfigInvalid('--database-url must have only letters, digits and _ in the names of its options'),
      );
  });

  test('rejects an option for TLS that has no effect on PostgreSQL', () => {
    for (const option of ['sslmod', 'ssl_mode', 'ssl-mode', 'SSLMODE', 'sslcrl', 'ssl%6dod'])
      assert.throws(
        () => loadConfig({ databaseUrl: `postgres://u:p@a,b/d?application_name=x&${option}=require` }, {}),
        new RegExp(`must not have the option ${decodeURIComponent(option)},`),
      );
    for (const option of [
      'ssl=true',
      'ssl=no-verify',
      'sslmode=require',
      'sslnegotiation=direct',
      'sslrootcert=ca.pem&sslcert=a&sslkey=b',
    ])
      loadConfig({ databaseUrl: `postgres://u:p@h/d?${option}` }, {});
  });

  test('rejects an option for TLS that is empty, given twice or unknown to the driver, on which it may not use TLS', () => {
    for (const [options, rule] of [
      ['sslmode=', 'sslmode once, with a value, not as ""'],
      ['sslmode', 'sslmode once, with a value, not as ""'],
      ['sslmode=verify-full&sslmode=', 'sslmode once, with a value, not as "verify-full" and ""'],
      [
        'sslmode=verify-full&a=b&sslmode=disable',
        'sslmode once, with a value, not as "verify-full" and "disable"',
      ],
      ['sslmode=require&sslrootcert=', 'sslrootcert once, with a value, not as ""'],
      ['sslcert=', 'sslcert once, with a value, not as ""'],
      ['sslkey=', 'sslkey once, with a value, not as ""'],
      ['sslnegotiation=', 'sslnegotiation once, with a value, not as ""'],
      ['ssl=', 'ssl once, as one of true, 1, no-verify, 0, not as ""'],
      ['ssl=false', 'ssl once, as one of true, 1, no-verify, 0, not as "false"'],
    ])
      assert.throws(
        () => loadConfig({ databaseUrl: `postgres://u:p@a,b/d?${options}` }, {}),
        new ConfigInvalid(`--database-url must have the option ${rule}`),
      );
  });

  test('rejects an unknown PGSSLMODE, which would mean plain text, unless the URL says more of TLS', () => {
    const databaseUrl = 'postgres://a,b/d';
    for (const mode of ['verify_full', 'allow']) {
      for (const rejected of ['', '?sslnegotiation=postgres', '?application_name=a?sslmode=disable'].map(
        (options) => databaseUrl + options,
      ))
        assert.throws(
          () => loadConfig({ databaseUrl: rejected }, { PGSSLMODE: mode }),
          new ConfigInvalid(
            `--database-url (DATABASE_URL) must have the option sslmode, since PGSSLMODE is "${mode}", not one of disable, prefer, require, verify-ca, verify-full, no-verify`,
          ),
        );
      const others = ['?sslmode=verify-full', '?sslnegotiation=direct'].map(
        (options) => databaseUrl + options,
      );
      for (const accepted of [...others, 'sqlite:plants.db'])
        loadConfig({ databaseUrl: accepted }, { PGSSLMODE: mode });
    }
    for (const mode of ['', 'disable', 'no-verify']) loadConfig({ databaseUrl }, { PGSSLMODE: mode });
  });

  test('plain text to another machine is noticed, unless the URL or PGSSLMODE asks for it', () => {
    for (const [url, environment = {}] of [
      ['postgres://u:p@db.example/d'],
      ['postgres://u:p@db.example:5433/d?application_name=a&sslnegotiation=postgres'],
      ['postgres://localhost.example'],
      ['postgres://localhost,db.example:5432/d'],
      ['postgres://u:p@localhost@db.example/d'],
      ['postgres://0.0.0.0/d'],
      ['postgres://localhost/d?host=db.example'],
      ['postgres://db.example/d?host=localhost&host=db.example'],
      ['postgres://db.example/d?application_name=a?sslmode=verify-full'],
      ['postgres://u:p&ssl@db.example/d'],
      ['postgres:///d', { PGHOST: 'db.example' }],
    ] as const)
      assert.equal(isPlainByDefault(url, environment), true, url);
    for (const [url, environment = {}] of [
      ['sqlite:plants.db', { PGHOST: 'db.example' }],
      ['postgres://u:p@localhost:5432/d'],
      ['postgresql://LOCALHOST'],
      ['postgres://127.0.0.1:5432,[::1]:5433/d?application_name=db.example'],
      ['postgres:///d'],
      ['postgres://u@/d?host=/var/run/postgresql', { PGHOST: 'db.example' }],
      [`postgres://u@${encodeURIComponent('/tmp')}/d`],
      ['postgres:///d', { PGHOST: '/var/run/postgresql' }],
      ['postgres://db.example/d?sslmode=disable'],
      ['postgres://db.example/d?application_name=a&ssl=true'],
      ['postgres://db.example/d?sslnegotiation=direct'],
      ['postgres://db.example/d', { PGSSLMODE: 'disable' }],
    ] as const)
      assert.equal(isPlainByDefault(url, environment), false, url);
  });

  test('is the same object shape however it is given', () => {
    const byFlags = loadConfig({ port: '1', adminPort: '2', basePath: '/v1' }, {});
    const byVariables = loadConfig({}, { PORT: '1', ADMIN_PORT: '2', BASE_PATH: '/v1' });
    assert.deepEqual(byFlags, byVariables);
  });
});

describe('the names of a setting', () => {
  test('follow from its key', () => {
    assert.deepEqual([flagOf('port'), variableOf('port')], ['--port', 'PORT']);
    assert.deepEqual([flagOf('adminPort'), variableOf('adminPort')], ['--admin-port', 'ADMIN_PORT']);
    assert.deepEqual([flagOf('databaseUrl'), variableOf('databaseUrl')], ['--database-url', 'DATABASE_URL']);
  });

  test('are its own, and it says what it is for', () => {
    assert.equal(new Set(settings.map(flagOf)).size, settings.length);
    assert.equal(new Set(settings.map(variableOf)).size, settings.length);
    for (const setting of settings) {
      assert.match(flagOf(setting), /^--[a-z]+(?:-[a-z]+)*$/);
      assert.match(variableOf(setting), /^[A-Z]+(?:_[A-Z]+)*$/);
      assert.match(helpOf(setting).description, /^[A-Za-z/].{5,}/);
    }
  });
});

for (const setting of settings) {
  describe(`the setting ${setting}`, () => {
    const { good, bad, others = {} } = values[setting];
    const variable = variableOf(setting);

    test('is taken from its flag and from its variable', () => {
      for (const [text, value] of good) {
        assert.equal(loadConfig({ ...others, [setting]: text }, {})[setting], value);
        if (text !== '') assert.equal(loadConfig(others, { [variable]: text })[setting], value);
      }
    });

    test('is the flag where both are given', () => {
      const [first = ['', ''], second = ['', '']] = good;
      assert.notEqual(first[1], second[1]);
      assert.equal(
        loadConfig({ ...others, [setting]: first[0] }, { [variable]: second[0] })[setting],
        first[1],
      );
      assert.equal(
        loadConfig({ ...others, [setting]: second[0] }, { [variable]: first[0] })[setting],
        second[1],
      );
    });

    test('invalid → a message with its source, its value and the rule', () => {
      const isComplaint = (source: string, text: string) => (error: unknown) => {
        const begin = secretive.includes(setting) ? source : `${source} is ${JSON.stringify(text)}; it`;
        return (
          error instanceof ConfigInvalid &&
          error.message.startsWith(`${begin} must `) &&
          error.message.length > `${begin} must be `.length
        );
      };
      for (const text of bad) {
        assert.throws(() => loadConfig({ [setting]: text }, {}), isComplaint(flagOf(setting), text), text);
        if (text === '') continue;
        assert.throws(() => loadConfig({}, { [variable]: text }), isComplaint(variable, text), text);
      }
    });

    test('has its default when its variable is empty', () => {
      assert.deepEqual(loadConfig({}, { [variable]: '' }), loadConfig({}, {}));
    });
  });
}
