import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { DEFAULT_MAX_BODY_BYTES, DEFAULT_PAGE_SIZE, DEFAULTS } from '../../client/src/options.ts';
import { MAX_MESSAGE_UNITS, SHORT_BODY_BYTES } from '../../client/src/response.ts';
import { LONGEST_RETRY_AFTER_MS, TRANSIENT_STATUSES } from '../../client/src/retry.ts';
import {
  CHARACTERS_IN_BATCH,
  INVALID_LINES_SHOWN,
  PLANTS_IN_BATCH,
} from '../../src/cli/commands/import-command.ts';
import { FORCED_EXIT_MS, SAME_SIGNAL_MS } from '../../src/cli/commands/serve-command.ts';
import { defaultOf, type Setting } from '../../src/config.ts';
import { MAX_JSON_DEPTH } from '../../src/exact-json.ts';
import { MAX_CELLS } from '../../src/formats/csv.ts';
import { MAX_LINE_BYTES } from '../../src/formats/format.ts';
import { MAX_SKIPPED_BYTES } from '../../src/formats/ndjson.ts';
import { CHECK_MS, SCRAPES_RENDERED, SILENT_MS } from '../../src/http/admin.ts';
import { JWT_CHECKS_AT_ONCE, operations, REFERENCE_SHARE } from '../../src/http/app.ts';
import {
  CHARACTERS_CACHED,
  CONFIRMED_MS,
  TOKEN_FRESH_MS,
  TOKENS_CACHED,
} from '../../src/http/auth/authentication.ts';
import {
  ALGORITHMS,
  COOLDOWN_MS,
  KEPT_MS,
  MAX_DOCUMENT_BYTES,
  MAX_KEYS,
  MAX_KEYS_TRIED,
  REFRESH_MS,
  STALE_MS,
} from '../../src/http/auth/jwks.ts';
import { CLOCK_TOLERANCE_S, MAX_JWT_LENGTH } from '../../src/http/auth/oidc.ts';
import { WINDOW_MS } from '../../src/http/auth/rate-limit.ts';
import { RETRY_SOON } from '../../src/http/error-response.ts';
import { PARSER_BUDGET_MS } from '../../src/http/http-app.ts';
import { BODY_MEMORY_BYTES, MIN_LARGEST_BODIES } from '../../src/http/overload/body-memory.ts';
import { OWNER_SHARE, slotsOfOwner } from '../../src/http/overload/concurrency-limit.ts';
import { HANDLER_BUDGET_MS } from '../../src/http/overload/loop-budget.ts';
import { BUFFERED_LIST_BYTES } from '../../src/http/plants/buffered-list.ts';
import { CONCURRENT_BUFFERED_LISTS, RECHECK_MS, STREAM_BYTES } from '../../src/http/plants/list-plants.ts';
import { FIRST_PAGE_PLANTS, PAGE_BYTES } from '../../src/http/plants/pagination.ts';
import { MAX_DISCARDED_BYTES, STALLED_TICKS } from '../../src/http/protocol/connection/connection-options.ts';
import { TICK_MS } from '../../src/http/protocol/connection/connection-registry.ts';
import { MAX_UNPARSED_BYTES } from '../../src/http/protocol/connection/input-limit.ts';
import { LINGER_MS } from '../../src/http/protocol/connection/linger.ts';
import {
  BASE_PIECES,
  BYTES_PER_PIECE,
  CHUNKED_SLICE_BYTES,
  MAX_FIELDS,
  MEMORY_PER_FIELD,
} from '../../src/http/protocol/connection/message-framing.ts';
import { UNCOUNTED_INPUT_BYTES } from '../../src/http/protocol/connection/socket-input.ts';
import { UNCOUNTED_BYTES } from '../../src/http/protocol/request-body.ts';
import { BEGUN_WAIT_MS, MEMORY_PER_BYTE, WAIT_MS } from '../../src/http/send-buffer-limit.ts';
import { QUEUE_TIMEOUT_MS } from '../../src/http/task-limit.ts';
import { MAX_LINES_IN_WINDOW } from '../../src/observability/audit-log.ts';
import { BUFFER_LIMITS, EXIT_FLUSH_MS } from '../../src/observability/log-writer.ts';
import { DRAIN_MS, GRACE_MS, LAST_MS } from '../../src/server.ts';
import { KEY_EXPIRY_INTERVAL_MS } from '../../src/store/expired-keys-timer.ts';
import { MAX_BATCH, MAX_WAITING, OWNER_CHARACTERS } from '../../src/store/group-commit.ts';
import { PER_OWNER_MS } from '../../src/store/postgres/commit.ts';
import { EXPIRED_KEYS_AT_ONCE } from '../../src/store/postgres/expired-keys.ts';
import {
  LOCK_TIMEOUT_MS as MIGRATION_LOCK_TIMEOUT_MS,
  TIMEOUT_MS as MIGRATION_TIMEOUT_MS,
} from '../../src/store/postgres/migrate.ts';
import {
  CHARACTERS_BETWEEN_CHECKPOINTS,
  LOG_LEFT_BYTES,
  REPEATED_LOCK_TIMEOUT_MS,
  WRITE_LOCK_TIMEOUT_MS,
} from '../../src/store/sqlite/connection.ts';
import { MAX_PATH_BYTES } from '../../src/store/sqlite/errors.ts';
import { LOCK_TIMEOUT_MS } from '../../src/store/sqlite/migrate.ts';
import { KEY_DELETION_MS, REQUESTS_BETWEEN_CHECKPOINTS } from '../../src/store/sqlite/writer-thread.ts';
import { KEY_DELETION_AGE_MS, KEY_LIFETIME_MS } from '../../src/store/store.ts';
import { DEFAULT_EXPIRES, LAST_USE_STEP_MS, TOKEN_NAME_RULE } from '../../src/token.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const KIB = 1_024;
const MIB = KIB * KIB;
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

const hours = `${KEY_LIFETIME_MS / HOUR_MS} hours`;
const listsAtOnce = Math.floor(numberOf('sendBufferLimit') / (STREAM_BYTES * MEMORY_PER_BYTE));
const shortList = `${FIRST_PAGE_PLANTS} plants or ${PAGE_BYTES / KIB} KiB`;
const tokensCached = `${grouped(TOKENS_CACHED)} tokens and ${CHARACTERS_CACHED / MIB} MiB of their text`;
const stop = `${FORCED_EXIT_MS / SECOND_MS} s`;
const expires = DEFAULT_EXPIRES.replace('d', ' days');
const line = `${MAX_LINE_BYTES / MIB} MiB`;

function numberOf(setting: Setting): number {
  return Number(defaultOf(setting));
}

function code(text: string): string {
  return `\`${text}\``;
}

function grouped(count: number): string {
  return count.toLocaleString('en-US');
}

/** The texts with a limit, as each page must have them. */
const texts: Readonly<Record<string, readonly string[]>> = {
  'README.md': [`This holds for ${hours}`, `expires in ${expires}`],
  'CHANGELOG.md': [`safe to retry for ${hours}`, `up to ${BUFFERED_LIST_BYTES / MIB} MiB of JSON`],
  'SECURITY.md': [
    `body ${numberOf('bodyLimit') / KIB} KiB`,
    `headers ${numberOf('headerLimit') / KIB} KiB and ${MAX_FIELDS} of them`,
    `URI ${grouped(numberOf('uriLimit'))} characters`,
    `headers ${numberOf('headerTimeout') / SECOND_MS} s, all ${numberOf('requestTimeout') / SECOND_MS} s`,
    `${numberOf('maxInFlight')} reads and ${numberOf('maxInFlight')} writes`,
    `| Lookups of tokens that were valid at their last lookup | ${numberOf('maxInFlight')};`,
    `| Lookups of other tokens | ${numberOf('maxInFlight')};`,
    `${numberOf('sendBufferLimit') / MIB} MiB in all, ${listsAtOnce} lists without a \`limit\` at a time`,
    `reads nothing for ${numberOf('writeTimeout') / SECOND_MS} s`,
    `| Connections | ${grouped(numberOf('maxConnections'))};`,
    `by default expires after ${expires}`,
    `| Time of the parser | ${PARSER_BUDGET_MS} ms per event-loop iteration;`,
    tokensCached,
  ],
  'docs/configuration.md': [
    `A note for the list of tokens, ${TOKEN_NAME_RULE}.`,
    `| Chunks of a chunked body; TLS records of any body, counted separately | ${BASE_PIECES} each, plus one for every ${BYTES_PER_PIECE} bytes so far;`,
    `| Bodies that arrive in parts | ${BODY_MEMORY_BYTES / MIB} MiB in all, not counting the first ${UNCOUNTED_BYTES / KIB} KiB of each,`,
    `at least ${MIN_LARGEST_BODIES} bodies of \`--body-limit\``,
    `${listsAtOnce} of more than ${shortList}, for ${numberOf('sendBufferLimit') / MIB} MiB of`,
    `${MAX_DISCARDED_BYTES / KIB} KiB and the read that exceeds them, or one second; then the connection is closed`,
    `| Memory for pipelined requests and for the headers and trailers of incomplete ones | ${MAX_UNPARSED_BYTES / MIB} MiB in all, not counting the first ${UNCOUNTED_INPUT_BYTES / KIB} KiB of each connection. A header counts ${MEMORY_PER_FIELD} bytes more than its text.`,
    `| Nesting of JSON | ${MAX_JSON_DEPTH} levels |`,
    `| Headers of a request | ${MAX_FIELDS}; above it 431.`,
    `| Queued writes | ${grouped(MAX_WAITING)}; a batch takes up to ${grouped(MAX_BATCH)}, and of one owner no more once its plants reach ${OWNER_CHARACTERS / KIB} Ki characters |`,
    `| Lifetime of an idempotency key | ${hours} after it created a plant; deleted after ${KEY_DELETION_AGE_MS / HOUR_MS} |`,
    `| A list with \`limit\` | ends at ${BUFFERED_LIST_BYTES / MIB} MiB,`,
    `| Path of an embedded store | ${MAX_PATH_BYTES} bytes, without symbolic links; ${MAX_PATH_BYTES - '.partial'.length} for a backup |`,
    `| A page read from the store | ${PAGE_BYTES / KIB} KiB of JSON,`,
    `half a second; ${tokensCached}`,
    `| A JWT | ${MAX_JWT_LENGTH} characters; clocks may differ by ${CLOCK_TOLERANCE_S} s.`,
    `up to ${MAX_KEYS} keys, in documents of up to ${MAX_DOCUMENT_BYTES / MIB} MiB`,
    `read every ${REFRESH_MS / MINUTE_MS} minutes, but only once in ${COOLDOWN_MS / SECOND_MS} s`,
  ],
  'docs/data.md': [
    `the first ${INVALID_LINES_SHOWN} reported`,
    `milliseconds at a time. After ${WRITE_LOCK_TIMEOUT_MS / SECOND_MS} s without it`,
    `up to ${grouped(PLANTS_IN_BATCH)} plants or ${CHARACTERS_IN_BATCH / MIB} million characters`,
    `A line over ${line} is invalid; one without an end after ${MAX_SKIPPED_BYTES / MIB} MiB`,
    `a line over ${line} or with over ${grouped(MAX_CELLS)} cells`,
  ],
  'docs/errors.md': [
    `Within ${hours} the key came`,
    `nested up to ${MAX_JSON_DEPTH} levels`,
    `asked less than ${COOLDOWN_MS / SECOND_MS} s ago`,
    `\`--header-timeout\` (${numberOf('headerTimeout') / SECOND_MS} s by default)`,
    `\`--request-timeout\` (${numberOf('requestTimeout') / SECOND_MS} s by default). Send it again`,
    `\`--uri-limit\` (${numberOf('uriLimit')} characters by default)`,
    `\`--header-limit\` (${numberOf('headerLimit') / KIB} KiB by default)`,
  ],
  'docs/identity-providers.md': [
    `up to ${MAX_JWT_LENGTH} characters`,
    `reads up to ${MAX_DOCUMENT_BYTES / MIB} MiB of each document, and up to ${MAX_KEYS} keys`,
    `differ by ${CLOCK_TOLERANCE_S} s`,
    `${ALGORITHMS.slice(0, -1).map(code).join(', ')} or ${ALGORITHMS.slice(-1).map(code)} |`,
    `\`Retry-After\` up to ${COOLDOWN_MS / SECOND_MS} s`,
  ],
  'docs/operations.md': [
    `valid for [${hours}]`,
    `timeout to \`--stop-delay\` plus ${Math.ceil(FORCED_EXIT_MS / SECOND_MS)} s`,
    `For ${GRACE_MS / SECOND_MS} s clients`,
    `| up to ${(GRACE_MS + DRAIN_MS) / SECOND_MS} s after the pause |`,
    `| up to ${LAST_MS / SECOND_MS} s more |`,
    `| ${stop} after the pause |`,
    `writes get 50300 after up to ${(WRITE_LOCK_TIMEOUT_MS + REPEATED_LOCK_TIMEOUT_MS) / SECOND_MS} s`,
    `a busy timeout of ${WRITE_LOCK_TIMEOUT_MS / SECOND_MS} s,`,
    `The end, ${stop} after the pause.`,
    `a start waits up to ${LOCK_TIMEOUT_MS / SECOND_MS} s,`,
    `every ${REQUESTS_BETWEEN_CHECKPOINTS} batches, or every ${CHARACTERS_BETWEEN_CHECKPOINTS / MIB} million`,
    `The service retries every ${REQUESTS_BETWEEN_CHECKPOINTS} batches`,
    `its file is cut to ${LOG_LEFT_BYTES / MIB} MiB`,
    `\`operation\` is ${operations.map(({ operationId }) => code(operationId)).join(', ')}, \`openapi\``,
    `on PostgreSQL ${grouped(EXPIRED_KEYS_AT_ONCE)} at a time, on SQLite for ${KEY_DELETION_MS} ms at a time`,
    `waits up to ${CHECK_MS / SECOND_MS} s for a check. A check that takes longer goes on; until it ends, its previous result counts. After ${SILENT_MS / SECOND_MS} s it counts as failed`,
    `above ${grouped(MAX_WAITING)} a write gets 50301`,
    `\`--keep-alive-timeout\` (${numberOf('keepAliveTimeout') / SECOND_MS} s)`,
    `lists of more than ${shortList} get 503`,
    `A begun list waits ${BEGUN_WAIT_MS / SECOND_MS} s for memory`,
    `if it comes ${SAME_SIGNAL_MS / SECOND_MS} s or more after the first`,
    `up to ${BUFFER_LIMITS.other / MIB} MiB of lines waits in memory. From ${BUFFER_LIMITS.request / KIB} KiB`,
    `from ${BUFFER_LIMITS.failedRequest / KIB} KiB on \`failed\` lines`,
    `waits for a slow reader for up to ${EXIT_FLUSH_MS.total / SECOND_MS} s, and ${EXIT_FLUSH_MS.idle} ms for one that reads nothing`,
    `a slow reader of the [log](#log), for up to ${EXIT_FLUSH_MS.total / SECOND_MS} s`,
    `A minute has up to ${MAX_LINES_IN_WINDOW} of each reason`,
  ],
  'docs/postgresql.md': [`Every 503 is error 50300 with \`Retry-After: ${RETRY_SOON['retry-after']}\``],
  'docs/decisions/0005-lists.md': [
    `every ${RECHECK_MS} ms`,
    `was ${CONFIRMED_MS} ms ago`,
    `\`limit\` ends at ${BUFFERED_LIST_BYTES / MIB} MiB`,
  ],
  'docs/decisions/0007-idempotency.md': [`The key lives ${hours}`],
  'docs/decisions/0008-token-cache.md': [`cached for ${TOKEN_FRESH_MS} ms`],
  'docs/decisions/0015-overload-and-rates.md': [
    `handlers get ${HANDLER_BUDGET_MS} ms per event-loop iteration`,
  ],
  'docs/decisions/0017-one-request-at-a-time.md': [
    `A streamed list reserves ${STREAM_BYTES / KIB} KiB, so ${listsAtOnce} run at the same time`,
    `up to ${CHUNKED_SLICE_BYTES / KIB} KiB if it is chunked`,
    `first waits up to ${WAIT_MS / SECOND_MS} s for memory`,
    `once requests have taken ${PARSER_BUDGET_MS} ms of an iteration`,
  ],
  'client/README.md': [
    `| \`timeoutMs\` | ${grouped(DEFAULTS.timeoutMs)} |`,
    `| \`retries\` | ${DEFAULTS.retries} |`,
    `| \`maxBodyBytes\` | ${grouped(DEFAULT_MAX_BODY_BYTES)} |`,
    `a page has up to ${BUFFERED_LIST_BYTES / MIB} MiB and one plant`,
    `of an error above ${SHORT_BODY_BYTES / KIB} KiB`,
    `its first ${grouped(MAX_MESSAGE_UNITS)} characters`,
    `\`pageSize\` plants (default ${grouped(DEFAULT_PAGE_SIZE)})`,
    `the statuses ${TRANSIENT_STATUSES.slice(0, -1).join(', ')} and ${TRANSIENT_STATUSES.at(-1)}`,
  ],
  'client/src/client.ts': [`Within ${hours}, a second creation`, `Default: ${grouped(DEFAULT_PAGE_SIZE)}.`],
  'client/src/options.ts': [
    `Default: ${grouped(DEFAULTS.timeoutMs)}.`,
    `Default: ${DEFAULTS.retries}.`,
    `Default: ${grouped(DEFAULT_MAX_BODY_BYTES)}.`,
  ],
  'docs/decisions/0020-client-package.md': [`| Retries by default | ${DEFAULTS.retries} |`],
  'deploy/alerts.yaml': [
    `--max-in-flight (${numberOf('maxInFlight')}), or ${slotsOfOwner(numberOf('maxInFlight'))} of one owner`,
  ],
  'deploy/compose.yaml': [`stops within ${stop} plus STOP_DELAY`],
  'deploy/kubernetes/plant-store.yaml': [`stops within ${stop} plus STOP_DELAY`],
  'deploy/plant-store.service': [`stops within ${stop} plus STOP_DELAY`],
};

for (const [file, wanted] of Object.entries(texts)) {
  test(`${file}: limits equal the constants of the sources`, async () => {
    const page = (await readFile(join(ROOT, file), 'utf8')).replaceAll(/\s+(?:\* )?/g, ' ');
    for (const text of wanted) assert.ok(page.includes(text), text);
  });
}

/** Numbers that pages give in words. If one of these changes, search the pages and the help for its words. */
test('limits that pages give in words', () => {
  const inWords: readonly (readonly [words: string, value: number, constant: number])[] = [
    ['bytes are read for a second after an early error', SECOND_MS, LINGER_MS],
    ['timeouts are counted once a second', SECOND_MS, TICK_MS],
    [
      'a token lookup is cached for half a second, and a revoked token works up to a second',
      SECOND_MS / 2,
      TOKEN_FRESH_MS,
    ],
    ['rates are counted a minute', MINUTE_MS, WINDOW_MS],
    ['expired keys are deleted every minute', MINUTE_MS, KEY_EXPIRY_INTERVAL_MS],
    ['a list is queued for its reads for up to 30 s', 30 * SECOND_MS, QUEUE_TIMEOUT_MS],
    ['statements per owner last at least ten minutes', 10 * MINUTE_MS, PER_OWNER_MS],
    ['a migration waits up to a minute for others', MINUTE_MS, MIGRATION_TIMEOUT_MS],
    ['a migration waits one second at a time for a table', SECOND_MS, MIGRATION_LOCK_TIMEOUT_MS],
    ['a stalled connection may be closed after two seconds', 2 * SECOND_MS, STALLED_TICKS * TICK_MS],
    ['keys of the provider are kept for a day', 24 * HOUR_MS, KEPT_MS],
    ['a withdrawn key of the provider works for five minutes', 5 * MINUTE_MS, STALE_MS],
    ['keys of the provider are refreshed every four minutes', 4 * MINUTE_MS, REFRESH_MS],
    ['one owner gets three quarters', 3 / 4, OWNER_SHARE],
    ['four lists with a limit are read at a time', 4, CONCURRENT_BUFFERED_LISTS],
    ['up to four keys of the provider are tried for a JWT', 4, MAX_KEYS_TRIED],
    ['four JWTs are verified at a time', 4, JWT_CHECKS_AT_ONCE],
    ['the script of `/docs` has an eighth of the memory for lists', 1 / 8, REFERENCE_SHARE],
    ['ten scrapes a second are rendered', 10, SCRAPES_RENDERED],
    ['the last use of a token is known to within a minute', MINUTE_MS, LAST_USE_STEP_MS],
    ['the client waits for `Retry-After` up to a minute', MINUTE_MS, LONGEST_RETRY_AFTER_MS],
  ];
  for (const [words, value, constant] of inWords) assert.equal(constant, value, words);
});

test('revocation: a list ends within a second, also if lookups fail, but not for one failed lookup', () => {
  assert.ok(TOKEN_FRESH_MS + RECHECK_MS < CONFIRMED_MS);
  assert.ok(CONFIRMED_MS + RECHECK_MS < SECOND_MS);
});

test('the alert on waiting writes fires below the limit of requests in flight', async () => {
  const alerts = await readFile(join(ROOT, 'deploy/alerts.yaml'), 'utf8');
  const [, threshold] = /plant_store_writes_in_flight > (\d+)/.exec(alerts) ?? [];
  assert.ok(Number(threshold) < numberOf('maxInFlight'));
});

test('HAProxy keeps idle connections for a shorter time than the service', async () => {
  const config = await readFile(join(ROOT, 'deploy/haproxy.cfg'), 'utf8');
  const [, seconds] = /timeout http-keep-alive (\d+)s/.exec(config) ?? [];
  assert.ok(Number(seconds) * SECOND_MS < numberOf('keepAliveTimeout'));
});
