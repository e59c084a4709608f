import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { collectDefaultMetrics, Registry } from 'prom-client';
import { factTables } from '../../build/fact-tables.ts';
import dashboard from '../../deploy/grafana-dashboard.json' with { type: 'json' };
import manifest from '../../package.json' with { type: 'json' };
import { loadConfig } from '../../src/config.ts';
import { createMetrics } from '../../src/observability/metrics.ts';
import { collectProcessMetrics } from '../../src/observability/process-metrics.ts';
import { renderRequest, sendRaw } from '../support/clients/raw-http.ts';
import { engines, type TestEngine } from '../support/engines.ts';
import { holdWrites } from '../support/faults/hold-writes.ts';
import { until } from '../support/patience.ts';
import { bearer, startService, type TestService } from '../support/service.ts';
import { create, writeAll } from '../support/store-setup.ts';

const ALERTS = readFileSync(new URL('../../deploy/alerts.yaml', import.meta.url), 'utf8');

/** Prometheus itself provides the first. Only a service with TLS or an identity provider has the others. */
const ELSEWHERE = [
  'up',
  'plant_store_tls_certificate_expiry_timestamp_seconds',
  'plant_store_identity_provider_keys',
  'plant_store_identity_provider_failing_seconds',
];

/** Only a request above the share of its owner has this label. */
const LABEL_ELSEWHERE = 'limit';

/** The samples of a scrape, by name and labels as in the text. */
type Samples = ReadonlyMap<string, number>;

async function scrape({ adminUrl }: TestService): Promise<Samples> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.replace(/ \S+$/, ''), Number(line.split(' ').at(-1))]));
}

/** Scrapes until the samples match. */
async function scrapeUntil(service: TestService, fits: (samples: Samples) => boolean): Promise<Samples> {
  let samples = await scrape(service);
  await until(
    async () => {
      samples = await scrape(service);
      return fits(samples);
    },
    () => inspected(samples),
  );
  return samples;
}

function inspected(samples: Samples): string {
  return [...samples].filter(([name]) => name.startsWith('plant_store')).join('\n');
}

async function start(t: TestContext, engine: TestEngine) {
  const url = await engine.freshUrl(t);
  const service = await startService(t, url);
  const headers = bearer(await service.token());
  const create = (id: number, name = 'Alder'): Promise<Response> =>
    fetch(`${service.url}/plants`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({ id, name }),
    });
  const list = async (query = '', method = 'GET'): Promise<number> => {
    const answer = await fetch(`${service.url}/plants${query}`, { method, headers });
    return (await answer.arrayBuffer()).byteLength;
  };
  return { url, service, headers, create, list };
}

/** Creates plants of alice in the store. */
async function fill({ store }: TestService, count: number, name: string): Promise<void> {
  const outcomes = await writeAll(
    store,
    Array.from({ length: count }, (_, id) => create(BigInt(id), { name })),
  );
  assert.ok(outcomes.every((outcome) => outcome === 'created'));
}

for (const engine of engines) {
  test(`requests → counted by operation and status, on ${engine.name}`, async (t) => {
    const { service, create, list } = await start(t, engine);
    await create(1);
    await create(1);
    await list();
    await fetch(`${service.url}/plants`);
    await fetch(`${service.url}/nothing`);
    const samples = await scrapeUntil(
      service,
      (all) => all.get(answered('none', 404)) === 1 && all.get(answered('listPlants', 401)) === 1,
    );
    assert.equal(samples.get(answered('createPlant', 200)), 1);
    assert.equal(samples.get(answered('createPlant', 400)), 1);
    assert.equal(samples.get(answered('listPlants', 200)), 1);
    const build = `version="${manifest.version}",engine="${engine.name}",node="${process.versions.node}"`;
    assert.equal(samples.get(`plant_store_build_info{${build}}`), 1);
    await service.close();
  });

  test(`message without an operation → counted as rejected, on ${engine.name}`, async (t) => {
    const { service } = await start(t, engine);
    assert.equal((await sendRaw(service.url, 'GET /plants HTTP/1.1\r\nbad header\r\n\r\n')).status, 400);
    const tunnel = 'CONNECT plants.test:443 HTTP/1.1\r\nHost: plants.test\r\n\r\n';
    assert.equal((await sendRaw(service.url, tunnel)).status, 404);
    const samples = await scrape(service);
    assert.equal(samples.get('plant_store_http_refused_messages_total{status="400"}'), 1);
    assert.equal(samples.get('plant_store_http_refused_messages_total{status="404"}'), 1);
    await service.close();
  });

  test(`lists, whole, streamed and in pages → bytes counted, without HEAD, on ${engine.name}`, async (t) => {
    const { service, list } = await start(t, engine);
    await fill(service, 600, 'Größe');
    const sent =
      (await list()) + (await list('?limit=2')) + (await list('?limit=0')) + (await list('', 'HEAD'));
    await list('?limit=2', 'HEAD');
    assert.equal((await scrape(service)).get('plant_store_list_sent_bytes_total'), sent);
    await service.close();
  });

  test(`client disconnects during a list → counted as aborted, not as answered, on ${engine.name}`, async (t) => {
    const { service, headers } = await start(t, engine);
    await fill(service, 400, 'x'.repeat(60_000));
    const reading = get(`${service.url}/plants`, { agent: false, headers });
    const [list] = await once(reading, 'response');
    list.on('error', () => undefined);
    await once(list, 'readable');
    list.destroy();
    const aborted = 'plant_store_http_aborted_requests_total{operation="listPlants"}';
    const samples = await scrapeUntil(service, (all) => all.get(aborted) === 1);
    assert.equal(samples.get(answered('listPlants', 200)), undefined);
    await service.close();
  });

  test(`client disconnects during a creation → counted as aborted, not as answered, on ${engine.name}`, async (t) => {
    const { url, service, headers, create } = await start(t, engine);
    await create(0);
    await scrapeUntil(service, isIdle);
    const held = await holdWrites(url);
    const body = '{"id":1,"name":"Alder"}';
    const authorization = ['Authorization', headers.authorization ?? ''] as const;
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    const closed = once(socket, 'close');
    const type = ['Content-Type', 'application/json'] as const;
    socket.end(renderRequest({ method: 'POST', path: '/plants', headers: [authorization, type], body }));
    await scrapeUntil(service, (all) => inStore(all) > 0);
    socket.destroy();
    await closed;
    await held.release();
    const aborted = 'plant_store_http_aborted_requests_total{operation="createPlant"}';
    const samples = await scrapeUntil(service, (all) => all.get(aborted) === 1);
    assert.equal(samples.get(answered('createPlant', 200)), 1);
    assert.equal(service.logLines.filter((line) => line.includes('client went away')).length, 1);
    await service.close();
  });

  test(`share of an owner or total limit reached → different in metrics and log, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    const service = await startService(t, url, { maxInFlight: '2' });
    const createAs = async (owner: string) => {
      const headers = { ...bearer(await service.token(owner)), 'content-type': 'application/json' };
      // Stores the time of the first use of the token before writes wait.
      assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 200);
      return (id: number): Promise<Response> =>
        fetch(`${service.url}/plants`, { method: 'POST', headers, body: `{"id":${id},"name":"Alder"}` });
    };
    const [alice, bob, carol] = [await createAs('alice'), await createAs('bob'), await createAs('carol')];
    await scrapeUntil(service, isIdle);
    const held = await holdWrites(url);
    const accepted = [alice(1)];
    await scrapeUntil(service, (all) => inStore(all) === 1);
    assert.equal((await alice(2)).status, 503);
    accepted.push(bob(3));
    await scrapeUntil(service, (all) => inStore(all) === 2);
    assert.equal((await carol(4)).status, 503);
    await held.release();
    for (const answer of accepted) assert.equal((await answer).status, 200);
    const overloaded = 'operation="createPlant",status="503",error="50301"';
    const count = 'plant_store_http_request_duration_seconds_count';
    const samples = await scrapeUntil(service, (all) => all.get(`${count}{${overloaded}}`) === 1);
    assert.equal(samples.get(`${count}{${overloaded},limit="owner"}`), 1);
    await service.close();
    const logged = service.logLines
      .map((line) => JSON.parse(line))
      .filter(({ error }) => error === 50301)
      .map(({ owner, limit }) => ({ owner, limit }));
    assert.deepEqual(logged, [
      { owner: 'alice', limit: 'owner' },
      // Rejected before its token was checked.
      { owner: undefined, limit: undefined },
    ]);
  });

  test(`repeated token, also during its lookup → one miss, then hits, on ${engine.name}`, async (t) => {
    const { service, list } = await start(t, engine);
    await Promise.all(Array.from({ length: 3 }, () => list('?limit=0')));
    await list('?limit=0');
    const samples = await scrape(service);
    assert.equal(samples.get('plant_store_token_lookups_total{cache="hit"}'), 3);
    assert.equal(samples.get('plant_store_token_lookups_total{cache="miss"}'), 1);
    await service.close();
  });

  test(`batches → counted with writes and time; queued writes are shown, on ${engine.name}`, async (t) => {
    const { url, service, create } = await start(t, engine);
    await create(0);
    const before = await scrapeUntil(service, isIdle);
    const begun = performance.now();
    const held = await holdWrites(url);
    const first = create(1);
    await scrapeUntil(service, (all) => (all.get('plant_store_writes_in_flight') ?? 0) >= 1);
    const others = [create(1), create(1), create(1)];
    const during = await scrapeUntil(service, (all) => inStore(all) >= 4);
    assert.ok((during.get('plant_store_writes_waiting') ?? 0) >= 1, inspected(during));
    await held.release();
    for (const answer of [first, ...others]) await answer;
    const after = await scrape(service);
    assert.equal(inStore(after), 0);
    const grown = (name: string): number => (after.get(name) ?? 0) - (before.get(name) ?? 0);
    assert.equal(grown('plant_store_commit_batch_writes_sum'), 4);
    const batches = grown('plant_store_commit_batch_writes_count');
    assert.ok(batches >= 2 && batches <= 4, `${batches} batches`);
    assert.equal(grown('plant_store_commit_duration_seconds_count{result="committed"}'), 1);
    assert.equal(grown('plant_store_commit_duration_seconds_count{result="unchanged"}'), batches - 1);
    const seconds = grown('plant_store_commit_duration_seconds_sum{result="committed"}');
    assert.ok(seconds > 0 && seconds < (performance.now() - begun) / 1_000, `${seconds} s`);
    assert.equal(after.get('plant_store_commit_duration_seconds_count{result="failed"}'), 0);
    await service.close();
  });

  test(`connections to the database → shown; 0 on the embedded engine, on ${engine.name}`, async (t) => {
    const { service, create } = await start(t, engine);
    await create(1);
    const samples = await scrape(service);
    const [idle = -1, busy = -1] = ['idle', 'busy'].map((state) =>
      samples.get(`plant_store_database_connections{state="${state}"}`),
    );
    assert.equal(idle + busy > 0, engine.name === 'postgres', `${idle} idle, ${busy} busy`);
    assert.equal(samples.get('plant_store_database_connection_waits'), 0);
    await service.close();
  });

  test(`/ready → names its checks, on ${engine.name}`, async (t) => {
    const { service } = await start(t, engine);
    const ready = await fetch(`${service.adminUrl}/ready`);
    assert.deepEqual(
      [ready.status, await ready.json()],
      [200, { status: 'ok', checks: { serving: 'ok', store: 'ok' } }],
    );
    await service.close();
  });

  test(`metrics and labels of the dashboard and the alerts → all exist, on ${engine.name}`, async (t) => {
    const { service, create, list } = await start(t, engine);
    await create(1);
    await list();
    await sendRaw(service.url, 'no request\r\n\r\n');
    const samples = await scrape(service);
    await service.close();
    const names = new Set([...ELSEWHERE, ...[...samples.keys()].map((sample) => sample.replace(/\{.*/, ''))]);
    const labels = new Set([...samples.keys()].flatMap((sample) => labelsIn(sample)));
    const expressions = [...dashboardExpressions(), ...alertExpressions()];
    assert.ok(expressions.length > 20);
    for (const expression of expressions) {
      const asked = metricsIn(expression);
      assert.ok(asked.length > 0, expression);
      assert.deepEqual(
        asked.filter((name) => !names.has(name)),
        [],
        expression,
      );
      const grouped = [...expression.matchAll(/\bby \(([^)]+)\)/g)].flatMap(([, by = '']) => by.split(', '));
      const used = [...grouped, ...labelsIn(expression)];
      const known = [...labels, LABEL_ELSEWHERE, 'instance', 'job'];
      assert.deepEqual(
        used.filter((label) => !known.includes(label)),
        [],
        expression,
      );
    }
  });
}

test('durations of requests → cumulative buckets, sum and count for each operation and status', async () => {
  const { answered, registry } = createMetrics({ version: '1', engine: 'sqlite', operationIds: [] });
  for (const seconds of [0.0005, 0.002, 0.004, 7]) answered('createPlant', 200, seconds);
  answered('createPlant', 400, 0.004);
  const lines = (await registry.metrics()).split('\n');
  const of = (name: string, labels: string): string | undefined =>
    lines
      .find((line) => line.startsWith(`plant_store_http_request_duration_seconds_${name}{${labels}}`))
      ?.split(' ')
      .at(-1);
  const created = 'operation="createPlant",status="200"';
  const bounds = ['0.0005', '0.001', '0.0025', '0.005', '5', '+Inf'];
  assert.deepEqual(
    bounds.map((bound) => of('bucket', `le="${bound}",${created}`)),
    ['1', '1', '2', '3', '3', '4'],
  );
  assert.deepEqual([of('sum', created), of('count', created)], ['7.0065', '4']);
  assert.equal(of('count', 'operation="createPlant",status="400"'), '1');
});

test('batches fail → seconds from the first to the last since a success; one that changes nothing is none', async () => {
  let now = 0;
  const options = { version: '1', engine: 'sqlite', operationIds: [], monotonicNow: () => now } as const;
  const { committed, registry } = createMetrics(options);
  const seconds: (number | undefined)[] = [];
  for (const [at, result] of [
    [0, 'committed'],
    [1_000, 'failed'],
    [31_000, 'unchanged'],
    [66_500, 'failed'],
    [90_000, 'committed'],
    [95_000, 'failed'],
    [97_000, 'failed'],
  ] as const) {
    now = at;
    committed(1, 0.1, result);
    const metric = await registry.getSingleMetric('plant_store_commits_failing_seconds')?.get();
    seconds.push(metric?.values[0]?.value);
  }
  assert.deepEqual(seconds, [0, 0, 0, 65.5, 0, 0, 2]);
});

test('load of the store → each number under its name and state', async () => {
  const metrics = createMetrics({ version: '1.0.0', engine: 'postgres', operationIds: [] });
  metrics.watchStore(() => ({
    connections: { idle: 1, busy: 2, waiting: 3 },
    writesWaiting: 4,
    writesInFlight: 5,
    oldestBatchMs: 9_500,
    walBytes: 6,
    checkpointFailures: 7,
    timelineRegressions: 8,
  }));
  const lines = (await metrics.registry.metrics()).split('\n');
  const load = /^plant_store_(?:database|writes|oldest|wal|checkpoint|timeline)_\S+ [\d.]+$/;
  assert.deepEqual(lines.filter((line) => load.test(line)).toSorted(), [
    'plant_store_checkpoint_failures_total 7',
    'plant_store_database_connection_waits 3',
    'plant_store_database_connections{state="busy"} 2',
    'plant_store_database_connections{state="idle"} 1',
    'plant_store_oldest_batch_seconds 9.5',
    'plant_store_timeline_regressions_total 8',
    'plant_store_wal_bytes 6',
    'plant_store_writes_in_flight 5',
    'plant_store_writes_waiting 4',
  ]);
});

test('metrics of the process → those of prom-client, with the CPU time since its start', async () => {
  const [registry, original] = [new Registry(), new Registry()];
  collectProcessMetrics(registry);
  collectDefaultMetrics({ register: original });
  const described = (all: Registry) =>
    all.getMetricsAsArray().map(({ name, help, type }) => ({ name, help, type: String(type) }));
  const byName = (a: { name: string }, b: { name: string }): number => a.name.localeCompare(b.name);
  assert.deepEqual(described(registry).sort(byName), described(original).sort(byName));
  const { user, system } = process.cpuUsage();
  const value = async (name: string): Promise<number> =>
    (await registry.getSingleMetric(name)?.get())?.values[0]?.value ?? 0;
  assert.ok((await value('process_cpu_user_seconds_total')) >= user / 1e6);
  assert.ok((await value('process_cpu_system_seconds_total')) >= system / 1e6);
  assert.ok((await value('process_cpu_seconds_total')) >= (user + system) / 1e6);
  registry.clear();
  original.clear();
});

test('alert on queued writes → fires before requests are rejected', () => {
  const threshold = /plant_store_writes_waiting \+ plant_store_writes_in_flight > (\d+)/.exec(ALERTS)?.[1];
  assert.ok(Number(threshold) < loadConfig({}, {}).maxInFlight);
});

test('every metric of the service → in a panel of the dashboard or in an alert', async () => {
  const table = (await factTables()).find(({ name }) => name === 'metrics') ?? assert.fail();
  const names = table.rows.map(([name = '']) => name.replaceAll('`', ''));
  const shown = [...dashboardExpressions(), ...alertExpressions()]
    .flatMap(metricsIn)
    .map((name) => name.replace(/_(?:bucket|count|sum)$/, ''));
  assert.deepEqual(
    names.filter((name) => !shown.includes(name)),
    [],
  );
});

test('dashboard: metrics with common names → only of instances of the service, also for "All"', () => {
  const instance = dashboard.templating.list.find(({ name }) => name === 'instance') ?? assert.fail();
  assert.equal(instance.query, 'label_values(plant_store_build_info, instance)');
  // Without a value for "All", Grafana uses all values of the query.
  assert.ok(!('allValue' in instance));
  const common = dashboardExpressions().flatMap(
    (expr) => expr.match(/\b(?:process|nodejs)_\w+(?:\{.*?\})?/g) ?? [],
  );
  assert.ok(common.length > 0);
  for (const selector of common) assert.match(selector, /\{(?:.*,)?instance=~"\$instance"/);
});

test('dashboard panels → no overlap, unique ids', () => {
  const ids = dashboard.panels.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w } }) =>
    Array.from({ length: w }, (_, index) => `${x + index},${y}`),
  );
  assert.equal(new Set(cells).size, cells.length);
});

function answered(operation: string, status: number): string {
  return `plant_store_http_request_duration_seconds_count{operation="${operation}",status="${status}"}`;
}

/** The pending writes of a store. */
function inStore(samples: Samples): number {
  return (
    (samples.get('plant_store_writes_waiting') ?? 0) + (samples.get('plant_store_writes_in_flight') ?? 0)
  );
}

/** Checks that no write is pending: the recorded use of a token is one without a response. */
function isIdle(samples: Samples): boolean {
  return inStore(samples) === 0;
}

function dashboardExpressions(): string[] {
  return dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
}

function alertExpressions(): string[] {
  const blocks = [...ALERTS.matchAll(/ expr: (?:>-\n)?([\s\S]*?)\n {8}\w/g)];
  assert.equal(blocks.length, ALERTS.match(/- alert: /g)?.length);
  return blocks.map(([, expression = '']) => expression.replace(/\s+/g, ' '));
}

/** The metrics in a PromQL expression. */
function metricsIn(expression: string): string[] {
  const bare = expression.replace(/"[^"]*"/g, '');
  return [...bare.matchAll(/\b(?:plant_store|process|nodejs|up)(?:_\w+)?/g)].map(([name]) => name);
}

function labelsIn(text: string): string[] {
  return [...text.matchAll(/[{,]\s*(\w+)(?:=|=~)"/g)].map(([, label = '']) => label);
}
