import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logTo } from '../../src/observability/log.ts';
import { logStore } from '../../src/observability/store-log.ts';
import { engines, execute, postgres } from '../support/engines.ts';
import { holdWrites } from '../support/faults/hold-writes.ts';
import { until } from '../support/patience.ts';
import { startPostgres } from '../support/servers/postgres-server.ts';
import { bearer, startService } from '../support/service.ts';

test('task keeps failing → logged immediately, then once a minute, and after its recovery', () => {
  const lines: string[] = [];
  let now = 0;
  const { onTaskEnd } = logStore(logTo({ write: (line) => void lines.push(line) }, 'info').log, () => now);
  const failure = new Error('no space');
  onTaskEnd('writes', undefined);
  for (now = 0; now <= 150_000; now += 1_000) onTaskEnd('writes', failure);
  onTaskEnd('checkpoints', undefined);
  for (; now <= 170_000; now += 1_000) onTaskEnd('writes', undefined);
  const logged = lines
    .join('')
    .trim()
    .split('\n')
    .map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ level, failures }) => [level, failures]),
    [
      [50, 1],
      [50, 61],
      [50, 121],
      [30, 151],
    ],
  );
});

test('task fails and succeeds in turn → all failures are counted once a minute, and no recovery is logged before the last', () => {
  const lines: string[] = [];
  let now = 0;
  const { onTaskEnd } = logStore(logTo({ write: (line) => void lines.push(line) }, 'info').log, () => now);
  for (now = 0; now < 120_000; now += 1_000) {
    onTaskEnd('writes', new Error('no space'));
    onTaskEnd('writes', undefined);
  }
  now += 8_000;
  onTaskEnd('writes', undefined);
  assert.equal(lines.length, 2);
  now += 1_000;
  onTaskEnd('writes', undefined);
  const logged = lines.map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ level, failures }) => [level, failures]),
    [
      [50, 1],
      [50, 61],
      [30, 120],
    ],
  );
});

test('PostgreSQL warns at each write → logged immediately, then once a minute, and the last one too', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const lines: string[] = [];
  const { onDatabaseWarning } = logStore(
    logTo({ write: (line) => void lines.push(line) }, 'info').log,
    () => 0,
  );
  for (let second = 0; second < 90; second += 1) {
    onDatabaseWarning(`vacuum within ${second} transactions`);
    t.mock.timers.tick(1_000);
  }
  t.mock.timers.tick(60_000);
  const logged = lines.map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ level, warning, warnings }) => [level, warning, warnings]),
    [
      [40, 'vacuum within 0 transactions', 1],
      [40, 'vacuum within 59 transactions', 59],
      [40, 'vacuum within 89 transactions', 30],
    ],
  );
});

test('PostgreSQL rejects logins and warns in the same minute → a line for each, and their rest at the stop', () => {
  const lines: string[] = [];
  const { log } = logTo({ write: (line) => void lines.push(line) }, 'info');
  const { onLoginRejected, onDatabaseWarning, close } = logStore(log, () => 0);
  onLoginRejected('too many clients');
  onDatabaseWarning('vacuum within 1 transactions');
  onLoginRejected('wrong password');
  close();
  const logged = lines.map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.map(({ level, problem, logins, warning }) => [level, problem ?? warning, logins]),
    [
      [40, 'too many clients', 1],
      [40, 'vacuum within 1 transactions', undefined],
      [40, 'wrong password', 1],
    ],
  );
});

test('the clock differs from that of PostgreSQL → logged in seconds', () => {
  const lines: string[] = [];
  const { keyDeletion } = logStore(logTo({ write: (line) => void lines.push(line) }, 'info').log, () => 0);
  keyDeletion.onClockDifference?.(-3_600_400);
  const [line = '{}'] = lines;
  assert.equal(JSON.parse(line).aheadSeconds, -3_600);
});

test('a service on PostgreSQL without fsync → logged at its start', async (t) => {
  const server = await startPostgres(['fsync = off']);
  t.after(() => server.remove());
  const service = await startService(t, server.url());
  const found = (): string[] =>
    service.logLines.filter((line) => line.includes('PostgreSQL may lose writes'));
  await until(() => found().length === 1);
  const { level, fault }: Record<string, unknown> = JSON.parse(found().join(''));
  assert.equal(level, 40);
  assert.match(String(fault), /^fsync off: /);
});

test('PostgreSQL warns at each write, and the service stops → the number of all warnings is logged', async (t) => {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url);
  await execute(
    url,
    `CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
       $$BEGIN RAISE WARNING 'vacuum this database'; RETURN NEW; END$$;
     CREATE TRIGGER warn BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION warn()`,
  );
  const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
  for (const id of [1, 2, 3]) {
    const body = JSON.stringify({ id, name: 'Alder' });
    const { status } = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
    assert.equal(status, 200);
  }
  await service.close();
  const logged = service.logLines.map((line): Record<string, unknown> => JSON.parse(line));
  assert.deepEqual(
    logged.flatMap(({ warnings }) => warnings ?? []),
    [1, 2],
  );
});

for (const engine of engines) {
  test(`writes fail for a while → logged once at the start and once at the end, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const service = await startService(t, url, { databaseStatementTimeout: '300' });
    const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
    const create = async (id: number): Promise<number> => {
      const body = JSON.stringify({ id, name: 'Alder' });
      return (await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status;
    };
    const messages = (): string[] =>
      service.logLines.map((line) => String(JSON.parse(line).msg)).filter((msg) => msg.startsWith('writes '));
    assert.equal(await create(1), 200);
    const held = await holdWrites(url);
    assert.equal(await create(2), 503);
    await held.release();
    assert.equal(await create(3), 200);
    service.clock.monotonic += 10_000;
    // Stores nothing, so it would succeed on a full disk too.
    assert.equal((await fetch(`${service.url}/plants/99`, { method: 'DELETE', headers })).status, 404);
    assert.deepEqual(messages(), ['writes fail; fix the cause in err']);
    assert.equal(await create(4), 200);
    assert.deepEqual(messages(), ['writes fail; fix the cause in err', 'writes succeed again']);
  });
}
