type Level = 'debug' | 'info' | 'warn' | 'error' | 'fatal';

/**
 * Every log message with its level and fields, in the order of docs/operations.md. `npm run renew:tables`
 * copies changes to that page.
 */
export const logEvents = {
  'created a new store': ['info', 'store'],
  'migrating the store': ['info', 'migrations'],
  'the migration waits for a lock of another PostgreSQL session, for up to a minute': ['warn'],
  serving: ['info', 'url', 'adminUrl', 'store'],
  answered: [
    'info',
    'requestId',
    'traceId',
    'operation',
    'status',
    'error',
    'limit',
    'ms',
    'replayed',
    'owner',
    'token',
  ],
  'client went away': [
    'info',
    'requestId',
    'traceId',
    'operation',
    'reason',
    'status',
    'ms',
    'owner',
    'token',
  ],
  rejected: ['info', 'requestId', 'operation', 'status', 'error'],
  'a TLS handshake failed': ['debug', 'err'],
  failed: ['error', 'requestId', 'traceId', 'err'],
  'log lines were dropped: the output is read too slowly, or cannot be written': ['warn', 'lines'],
  'traces could not be sent; check the OpenTelemetry collector': ['warn', 'problem', 'spans'],
  'OpenTelemetry warns; act on its message': ['warn', 'warning'],
  'the last use of a token was not recorded': ['warn', 'err'],
  'writes fail; fix the cause in err': ['error', 'err', 'failures'],
  'writes succeed again': ['info', 'failures'],
  'checkpoints fail, so the write-ahead log grows; check the disk': ['warn', 'err', 'failures'],
  'checkpoints succeed again': ['info', 'failures'],
  'this PostgreSQL primary has a lower timeline than an earlier one: acknowledged writes may be lost; use the server with the highest timeline':
    ['error', 'timeline', 'highest'],
  'PostgreSQL may lose writes, or cannot fail over; correct its setup': ['warn', 'fault'],
  'PostgreSQL warns; act on its message': ['warn', 'warning', 'warnings'],
  'PostgreSQL rejects further connections, so requests wait for the open ones; fix the problem': [
    'warn',
    'problem',
    'logins',
  ],
  'expired idempotency keys were not deleted; retrying within a minute': ['warn', 'err'],
  'the clock is not that of PostgreSQL; synchronize both, for example by NTP': ['warn', 'aheadSeconds'],
  'the keys of the identity provider could not be read; check the provider and --oidc-issuer': [
    'warn',
    'err',
  ],
  'a key of the identity provider is unusable; replace it at the provider': ['warn', 'kid', 'problem'],
  'the admin listener has no authentication; restrict access to it': ['warn', 'host'],
  'no valid token, so every request for plants gets 401; create one: plant-store token create OWNER': [
    'warn',
  ],
  'another service uses the same SQLite file; stop one of them, or move to PostgreSQL to run several': [
    'warn',
    'store',
  ],
  'the SQLite file is on a network file system, where its locks do not work; move it to a local disk, or use PostgreSQL':
    ['warn', 'store'],
  'the SQLite file is on a file system in memory, which a restart of the machine or container empties; move it to a disk':
    ['warn', 'store'],
  'the SQLite file is on an overlay file system, which is usually removed with its container; mount a volume for it':
    ['warn', 'store'],
  'every user can read or change the SQLite file; set its mode to 640 or 600': ['warn', 'store', 'mode'],
  'the process may not open as many files as --max-connections needs; raise ulimit -n, or LimitNOFILE of its unit':
    ['warn', 'maxFiles', 'maxConnections'],
  'plain HTTP on a non-loopback address; use TLS or a proxy with TLS': ['warn', 'host'],
  'PostgreSQL is on another machine and reached without TLS; add sslmode=verify-full to its URL, or sslmode=disable on a private network':
    ['warn', 'store'],
  'X-Forwarded-For was ignored: its sender is not trusted; if it is a proxy, name it with --trust-proxy': [
    'warn',
    'address',
  ],
  'no X-Forwarded-For from a trusted address; if it is a proxy, let it set this header, since its clients count as one':
    ['warn', 'address'],
  'every user can read the TLS key file; set its mode to 640 or 600': ['warn', 'file', 'mode'],
  'a certificate in --tls-cert is not valid now, so clients may reject it; renew it, or correct the clock': [
    'warn',
    'subject',
    'validFrom',
    'validTo',
  ],
  'the certificate was reloaded': ['info', 'validTo'],
  'the certificate could not be reloaded, so the previous one stays in use; correct the files and send SIGHUP again':
    ['error', 'err'],
  'SIGHUP was ignored, since there is no certificate to read again; stop with SIGTERM': ['info'],
  stopping: ['info', 'signal'],
  'the parent process (npm) has ended; stopping': ['info'],
  'the first token could not be created; stopping': ['fatal', 'err'],
  'the first token could not be printed, so it was revoked; create one: plant-store token create OWNER': [
    'error',
    'err',
  ],
  'the first token could be neither printed nor revoked; revoke it: plant-store token revoke ID': [
    'error',
    'token',
    'reason',
    'err',
  ],
  'the write-ahead log could not be emptied and holds acknowledged writes; move and copy it with the store file':
    ['warn', 'file', 'reason'],
  'the write-ahead log may hold acknowledged writes of a store file that is no longer next to it; never open another file with it':
    ['error', 'file', 'reason'],
  stopped: ['info'],
  'the stop took too long, so requests in flight are cut off; exiting': ['error'],
  'shutdown failed': ['error', 'err'],
  'unexpected error; stopping': ['fatal', 'err'],
  'fatal store error; stopping. Check the disk; before the next start, copy the store with its -wal and -shm, and run plant-store check':
    ['fatal', 'err'],
  'a token was created': ['info', 'audit', 'token', 'owner', 'scopes', 'expires'],
  'a token may have been created': ['warn', 'audit', 'token', 'owner', 'scopes', 'expires'],
  'a token was revoked': ['info', 'audit', 'token'],
  'a token may have been revoked': ['warn', 'audit', 'token'],
  'a token was used for the first time': ['info', 'audit', 'token', 'owner', 'address', 'requestId'],
  'a token in use expires within a week; create another one for its owner': [
    'warn',
    'audit',
    'token',
    'owner',
    'expires',
    'address',
    'requestId',
  ],
  'a token was rejected': ['warn', 'audit', 'reason', 'token', 'owner', 'address', 'requestId'],
  'some rejected tokens were not logged, to limit the log': ['warn', 'audit', 'more'],
} as const satisfies Readonly<Record<string, readonly [Level, ...string[]]>>;

type Message = keyof typeof logEvents;

type FieldOf<M extends Message> = (typeof logEvents)[M] extends readonly [
  Level,
  ...infer Fields extends string[],
]
  ? Fields[number]
  : never;

export interface EventLog {
  /** Writes a log line. Leaves out a field whose value is undefined. */
  event<M extends Message>(message: M, fields: Readonly<Record<FieldOf<M>, unknown>>): void;
}
