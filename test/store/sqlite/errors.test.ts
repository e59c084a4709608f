import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { isForbidden, notOpened, type Severity, severityOf } from '../../../src/store/sqlite/errors.ts';

/** Result codes of SQLite (https://sqlite.org/rescode.html); an extended one has its primary code in the low byte. */
const cases: readonly (readonly [string, number, Severity])[] = [
  ['SQLITE_ERROR', 1, 'rejected'],
  ['SQLITE_INTERNAL', 2, 'rejected'],
  ['SQLITE_PERM', 3, 'rejected'],
  ['SQLITE_ABORT', 4, 'rejected'],
  ['SQLITE_BUSY', 5, 'transient'],
  ['SQLITE_BUSY_RECOVERY', 5 | (1 << 8), 'transient'],
  ['SQLITE_BUSY_SNAPSHOT', 5 | (2 << 8), 'transient'],
  ['SQLITE_LOCKED', 6, 'transient'],
  ['SQLITE_NOMEM', 7, 'uncertain'],
  ['SQLITE_READONLY', 8, 'transient'],
  ['SQLITE_INTERRUPT', 9, 'rejected'],
  ['SQLITE_IOERR', 10, 'fatal'],
  ['SQLITE_IOERR_READ', 10 | (1 << 8), 'fatal'],
  ['SQLITE_IOERR_SHORT_READ', 10 | (2 << 8), 'fatal'],
  ['SQLITE_IOERR_WRITE', 10 | (3 << 8), 'transient'],
  ['SQLITE_IOERR_FSYNC', 10 | (4 << 8), 'fatal'],
  ['SQLITE_IOERR_SHMSIZE', 10 | (19 << 8), 'uncertain'],
  ['SQLITE_CORRUPT', 11, 'fatal'],
  ['SQLITE_CORRUPT_INDEX', 11 | (3 << 8), 'fatal'],
  ['SQLITE_NOTFOUND', 12, 'rejected'],
  ['SQLITE_FULL', 13, 'transient'],
  ['SQLITE_CANTOPEN', 14, 'transient'],
  ['SQLITE_PROTOCOL', 15, 'transient'],
  ['SQLITE_SCHEMA', 17, 'rejected'],
  ['SQLITE_TOOBIG', 18, 'rejected'],
  ['SQLITE_CONSTRAINT', 19, 'rejected'],
  ['SQLITE_CONSTRAINT_CHECK', 19 | (1 << 8), 'rejected'],
  ['SQLITE_MISMATCH', 20, 'rejected'],
  ['SQLITE_MISUSE', 21, 'rejected'],
  ['SQLITE_AUTH', 23, 'rejected'],
  ['SQLITE_RANGE', 25, 'rejected'],
  ['SQLITE_NOTADB', 26, 'fatal'],
];

for (const [name, errcode, severity] of cases)
  test(`${name} → ${severity}`, () => {
    const error = Object.assign(new Error('failed'), { code: 'ERR_SQLITE_ERROR', errcode });
    assert.equal(severityOf(error), severity);
  });

test('an error that is not of SQLite → rejected', () => {
  for (const error of [new Error('failed'), Object.assign(new Error('failed'), { errcode: '10' }), undefined])
    assert.equal(severityOf(error), 'rejected');
});

test('file that may not be written, also an immutable one → the message says so', () => {
  for (const [code, remedy] of [
    ['EACCES', /must be writable by this user$/],
    ['EPERM', /must be writable by this user$/],
    ['EROFS', /mount its file system for writing/],
  ] as const) {
    const error = Object.assign(new Error(`${code}: access 'plants.db'`), { code, syscall: 'access' });
    assert.match(notOpened('plants.db', error).message, remedy);
    assert.ok(isForbidden(error));
  }
});

test('thread that lacks open files → the message names their limit', async () => {
  const script = `
    import { openSync } from 'node:fs';
    import { Worker } from 'node:worker_threads';
    import { reasonOf } from '${new URL('../../../src/store/sqlite/errors.ts', import.meta.url)}';
    try { for (;;) openSync('/dev/null'); } catch {}
    new Worker('', { eval: true }).once('error', (error) => process.stdout.write(reasonOf(error)));`;
  const command = [
    '-c',
    'ulimit -n 64; exec "$0" "$@"',
    process.execPath,
    '--input-type=module',
    '-e',
    script,
  ];
  const { stdout } = await promisify(execFile)('sh', command);
  assert.match(stdout, /^no thread can be started \(.*EMFILE\); .*ulimit -n/);
});
