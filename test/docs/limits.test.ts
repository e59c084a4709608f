import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SHUTDOWN_MS } from '../../src/cli/commands/serve-command.ts';
import { defaultOf, type Setting } from '../../src/config.ts';
import { MAX_JSON_DEPTH } from '../../src/exact-json.ts';
import { CHECK_MS } from '../../src/http/admin.ts';
import { TOKEN_FRESH_MS } from '../../src/http/auth/authentication.ts';
import { COOLDOWN_MS, KEPT_MS, REFRESH_MS } from '../../src/http/auth/jwks.ts';
import { CLOCK_TOLERANCE_S, MAX_JWT_LENGTH } from '../../src/http/auth/oidc.ts';
import { WINDOW_MS } from '../../src/http/auth/rate-limit.ts';
import { OWNER_SHARE } from '../../src/http/overload/concurrency-limit.ts';
import {
  CONCURRENT_GATHERS,
  GATHERED_BYTES,
  RECHECK_MS,
  STREAM_BYTES,
} from '../../src/http/plants/list-plants.ts';
import { PAGE_BYTES } from '../../src/http/plants/pagination.ts';
import { TICK_MS } from '../../src/http/protocol/connection-registry.ts';
import { LINGER_MS, MAX_DISCARDED_BYTES } from '../../src/http/protocol/http-connection.ts';
import { BASE_PIECES, BYTES_PER_PIECE } from '../../src/http/protocol/request-body.ts';
import { MEMORY_PER_BYTE } from '../../src/http/send-buffer-limit.ts';
import { DRAIN_MS, GRACE_MS, LAST_MS } from '../../src/server.ts';
import { EVERY_MS } from '../../src/store/expired-keys-timer.ts';
import { MAX_BATCH, MAX_WAITING } from '../../src/store/group-commit.ts';
import { WRITE_LOCK_TIMEOUT_MS } from '../../src/store/sqlite/connection.ts';
import { LOCK_TIMEOUT_MS } from '../../src/store/sqlite/migrate.ts';
import { KEY_LIFETIME_MS } from '../../src/store/store.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const KIB = 1_024;
const MIB = KIB * KIB;
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

const hours = `${KEY_LIFETIME_MS / HOUR_MS} hours`;
const listsAtOnce = Math.floor(numberOf('sendBufferLimit') / (STREAM_BYTES * MEMORY_PER_BYTE));
const stop = `${SHUTDOWN_MS / SECOND_MS} s`;

function numberOf(setting: Setting): number {
  return Number(defaultOf(setting));
}

function grouped(count: number): string {
  return count.toLocaleString('en-US');
}

/** The texts with a limit, as each page must have them. */
const texts: Readonly<Record<string, readonly string[]>> = {
  'README.md': [`This holds for ${hours}`],
  'CHANGELOG.md': [`safe to retry for ${hours}`, `up to ${GATHERED_BYTES / MIB} MiB of JSON`],
  'SECURITY.md': [
    `body ${numberOf('bodyLimit') / KIB} KiB`,
    `headers ${numberOf('headerLimit') / KIB} KiB`,
    `URI ${grouped(numberOf('uriLimit'))} characters`,
    `headers ${numberOf('headerTimeout') / SECOND_MS} s, all ${numberOf('requestTimeout') / SECOND_MS} s`,
    `${numberOf('maxInFlight')} reads and ${numberOf('maxInFlight')} writes`,
    `${numberOf('sendBufferLimit') / MIB} MiB in all, ${listsAtOnce} lists without a \`limit\` at once`,
    `reads nothing for ${numberOf('writeTimeout') / SECOND_MS} s`,
    `| Connections | ${grouped(numberOf('maxConnections'))};`,
  ],
  'docs/configuration.md': [
    `| Chunks of a body | ${BASE_PIECES}, plus one for every ${BYTES_PER_PIECE} bytes;`,
    `${listsAtOnce} of more than ${PAGE_BYTES / KIB} KiB, for ${numberOf('sendBufferLimit') / MIB} MiB of`,
    `${MAX_DISCARDED_BYTES / KIB} KiB or one second; then the connection is closed`,
    `| Nesting of JSON | ${MAX_JSON_DEPTH} levels |`,
    `| Queued writes | ${grouped(MAX_WAITING)}; one batch takes ${grouped(MAX_BATCH)} |`,
    `| Lifetime of an idempotency key | ${hours} `,
    `| A list with \`limit\` | ends at ${GATHERED_BYTES / MIB} MiB,`,
    `| A page read from the store | ${PAGE_BYTES / KIB} KiB of JSON,`,
    `| A JWT | ${MAX_JWT_LENGTH} characters; clocks may differ by ${CLOCK_TOLERANCE_S} s |`,
    `read every ${REFRESH_MS / MINUTE_MS} minutes, but only once in ${COOLDOWN_MS / SECOND_MS} s`,
  ],
  'docs/errors.md': [
    `Within ${hours} the key came`,
    `nested up to ${MAX_JSON_DEPTH} levels`,
    `asked less than ${COOLDOWN_MS / SECOND_MS} s ago`,
    `more than ${numberOf('headerTimeout') / SECOND_MS} s to arrive`,
    `more than ${numberOf('requestTimeout') / SECOND_MS} s. Send it again`,
    `The URI exceeds ${numberOf('uriLimit')} characters`,
  ],
  'docs/identity-providers.md': [
    `up to ${MAX_JWT_LENGTH} characters`,
    `differ by ${CLOCK_TOLERANCE_S} s`,
    `\`Retry-After\` up to ${COOLDOWN_MS / SECOND_MS} s`,
  ],
  'docs/operations.md': [
    `kept for [${hours}]`,
    `For ${GRACE_MS / SECOND_MS} s clients`,
    `| up to ${(GRACE_MS + DRAIN_MS) / SECOND_MS} s after the pause |`,
    `| up to ${LAST_MS / SECOND_MS} s more |`,
    `| ${stop} after the pause |`,
    `writes wait up to ${WRITE_LOCK_TIMEOUT_MS / SECOND_MS} s,`,
    `a start waits up to ${LOCK_TIMEOUT_MS / SECOND_MS} s,`,
    `fails after ${CHECK_MS / SECOND_MS} s without a result`,
    `above ${grouped(MAX_WAITING)} a write gets 50301`,
    `\`--keep-alive-timeout\` (${numberOf('keepAliveTimeout') / SECOND_MS} s)`,
  ],
  'docs/decisions/0005-lists.md': [`every ${RECHECK_MS} ms`, `\`limit\` ends at ${GATHERED_BYTES / MIB} MiB`],
  'docs/decisions/0007-idempotency.md': [`The key lives ${hours}`],
  'docs/decisions/0008-token-cache.md': [`cached for ${TOKEN_FRESH_MS} ms`],
  'docs/decisions/0017-one-request-at-a-time.md': [
    `A streamed list reserves ${STREAM_BYTES / KIB} KiB, so ${listsAtOnce} run at once`,
  ],
  'deploy/alerts.yaml': [
    `--max-in-flight (${numberOf('maxInFlight')}), or ${Math.ceil(numberOf('maxInFlight') * OWNER_SHARE)} of one owner`,
  ],
  'deploy/compose.yaml': [`stops within ${stop} plus STOP_DELAY`],
  'deploy/plant-store.service': [`stops within ${stop} plus STOP_DELAY`],
};

for (const [file, wanted] of Object.entries(texts)) {
  test(`${file}: limits equal the constants of the sources`, async () => {
    const page = (await readFile(join(ROOT, file), 'utf8')).replaceAll(/\s+/g, ' ');
    for (const text of wanted) assert.ok(page.includes(text), text);
  });
}

/** When one of these changes, search the pages and the help for its words. */
test('limits that pages give in words', () => {
  const inWords: readonly (readonly [words: string, value: number, constant: number])[] = [
    ['bytes are read for a second after an early error', SECOND_MS, LINGER_MS],
    ['timeouts are counted once a second', SECOND_MS, TICK_MS],
    ['a token lookup is cached for half a second', SECOND_MS / 2, TOKEN_FRESH_MS],
    ['rates are counted a minute', MINUTE_MS, WINDOW_MS],
    ['expired keys are deleted every minute', MINUTE_MS, EVERY_MS],
    ['keys of the provider are kept for a day', 24 * HOUR_MS, KEPT_MS],
    ['one owner gets three quarters', 3 / 4, OWNER_SHARE],
    ['four lists with a limit are read at once', 4, CONCURRENT_GATHERS],
  ];
  for (const [words, value, constant] of inWords) assert.equal(constant, value, words);
});

test('revocation: token cache and recheck together take less than a second', () => {
  assert.ok(TOKEN_FRESH_MS + RECHECK_MS < SECOND_MS);
});

test('HAProxy keeps idle connections for a shorter time than the service', async () => {
  const config = await readFile(join(ROOT, 'deploy/haproxy.cfg'), 'utf8');
  const [, seconds] = /timeout http-keep-alive (\d+)s/.exec(config) ?? [];
  assert.ok(Number(seconds) * SECOND_MS < numberOf('keepAliveTimeout'));
});
