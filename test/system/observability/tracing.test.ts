import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { test } from 'node:test';
import manifest from '../../../package.json' with { type: 'json' };
import { fillStore } from '../../long/long-list.ts';
import { openWire } from '../../support/clients/raw-connection.ts';
import { renderRequest } from '../../support/clients/raw-http.ts';
import { secretPart } from '../../support/data/secret-part.ts';
import { engines } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { type LogLine, newInstallation } from '../../support/program.ts';
import { freePort, listenOnFreePort } from '../../support/servers/free-port.ts';
import { startCollector } from '../../support/servers/otlp-collector.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { bearer } from '../../support/service.ts';

const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const PARENT_ID = 'b7ad6b7169203331';
const NOT_SENT = 'traces could not be sent; check the OpenTelemetry collector';
const WARNED = 'OpenTelemetry warns; act on its message';
const ENDPOINT = 'http://127.0.0.1:4318';

/** Returns the numbers of lost spans in the lines of a log. */
function spansLostIn(log: readonly LogLine[]): readonly unknown[] {
  return log.filter(({ msg }) => msg === NOT_SENT).map(({ spans }) => spans);
}

/** Reports on standard error, at exit, the number of loaded files of OpenTelemetry. */
const COUNT_LOADED = `--import=data:text/javascript,${encodeURIComponent(
  `import module from 'node:module';
   import { isMainThread } from 'node:worker_threads';
   if (isMainThread) process.on('exit', () => {
     const files = Object.keys(module._cache).filter((file) => /@opentelemetry/.test(file));
     process.stderr.write('loaded ' + files.length);
   });`,
)}`;

for (const engine of engines) {
  test(`traced request → continues the trace of the client, with a child span for its write, on ${engine.name}`, async (t) => {
    const installation = await newInstallation(t);
    const collector = await startCollector(t);
    const env = {
      DATABASE_URL: await engine.freshUrl(t),
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      NODE_ENV: 'production',
    };
    const { stdout } = await installation.run(['token', 'create', 'alice'], { env });
    const secret = stdout.trim();
    const service = await installation.serve({ env, flags: ['--base-path', '/v1'] });
    const headers = {
      ...bearer(secret),
      'content-type': 'application/json',
      traceparent: `00-${TRACE_ID}-${PARENT_ID}-01`,
    };
    const body = JSON.stringify({ id: 424242, name: 'Secret garden', tag: 'hidden' });
    const created = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
    assert.equal(created.status, 200, await created.text());
    const plain = bearer(secret);
    const asked = [
      ['GET', `/plants?limit=x&access_token=${secret}`, 400],
      ['GET', '/plants?limit=1', 200],
      ['DELETE', '/plants/424242', 204],
      ['DELETE', '/plants/424242', 404],
      ['GET', `/${secret}`, 404],
    ] as const;
    const ids: (string | null)[] = [created.headers.get('x-request-id')];
    for (const [method, path] of asked) {
      const answer = await fetch(`${service.url}${path}`, { method, headers: plain });
      await answer.arrayBuffer();
      ids.push(answer.headers.get('x-request-id'));
    }
    await service.stop();

    const spans = collector.spans();
    const requests = ids.map((id) =>
      spans.find(({ attributes }) => attributes['plant_store.request_id'] === id),
    );
    assert.deepEqual(
      requests.map((span) => span?.name),
      [
        'POST /v1/plants',
        'GET /v1/plants',
        'GET /v1/plants',
        'DELETE /v1/plants/:id',
        'DELETE /v1/plants/:id',
        'GET',
      ],
    );
    assert.deepEqual(
      requests.map((span) => span?.attributes['http.response.status_code']),
      [200, ...asked.map(([, , status]) => status)],
    );
    for (const span of requests) assert.equal(span?.status, 0, 'a rejected request is not a server error');
    const [create, ...others] = requests;
    assert.deepEqual([create?.traceId, create?.parentId], [TRACE_ID, PARENT_ID]);
    assert.equal(new Set(others.map((span) => span?.traceId)).size, others.length);
    assert.deepEqual(new Set(others.map((span) => span?.parentId)), new Set(['']));
    const write = spans.find(({ name }) => name === 'store createPlant');
    assert.deepEqual([write?.traceId, write?.parentId], [TRACE_ID, create?.spanId]);
    assert.equal(write?.attributes['plant_store.outcome'], 'created');
    assert.ok(create !== undefined && write.duration > 0n && write.duration <= create.duration);
    assert.deepEqual(
      [create.resource['service.name'], create.resource['service.version']],
      ['plant-store', manifest.version],
    );

    const line = service.log.find(({ requestId, msg }) => requestId === ids[0] && msg === 'answered');
    assert.equal(line?.traceId, TRACE_ID);
    const bytes = Buffer.concat(collector.messages);
    for (const private_ of [
      secret,
      secretPart(secret),
      'Secret garden',
      'hidden',
      '424242',
      'alice',
      'Bearer',
    ])
      assert.ok(!bytes.includes(private_), `${private_} is in the traces`);
  });
}

test('pipelined requests of two callers → no span in the trace of the other caller', async (t) => {
  const installation = await newInstallation(t);
  const collector = await startCollector(t);
  const tokens = [await installation.token('alice'), await installation.token('bob')];
  const service = await installation.serve({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const requests = tokens.map((token) =>
    renderRequest({
      method: 'POST',
      path: '/plants',
      headers: [
        ...Object.entries(bearer(token)),
        ['connection', 'keep-alive'],
        ['content-type', 'application/json'],
      ],
      body: '{"id":1,"name":"Alder"}',
    }),
  );
  wire.send(Buffer.concat(requests));
  for (const _ of tokens) assert.equal((await wire.answer())?.status, 200);
  await service.stop();
  const traces = Object.values(Object.groupBy(collector.spans(), ({ traceId }) => traceId));
  assert.deepEqual(
    traces.map((spans) => spans?.map(({ name }) => name).sort()),
    tokens.map(() => ['POST /plants', 'store createPlant']),
  );
});

test('client disconnects while its list is sent → the span says so, and has no status', async (t) => {
  const installation = await newInstallation(t);
  const collector = await startCollector(t);
  const token = await installation.token();
  // More than the operating system buffers for a client that does not read.
  await fillStore(installation.databaseUrl, 'alice', 200, 60_000);
  const service = await installation.serve({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } });
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  socket.write(`GET /plants HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  await once(socket, 'readable');
  socket.resetAndDestroy();
  await service.logged(({ msg }) => msg === 'client went away');
  await service.stop();
  const { attributes, status } = collector.spans().find(({ name }) => name === 'GET /plants') ?? {};
  assert.deepEqual(
    [attributes?.['error.type'], attributes?.['http.response.status_code'], status],
    ['client_went_away', undefined, 0],
  );
});

test('methods that the conventions do not know → _OTHER, and HTTP in the name of the span', async (t) => {
  const installation = await newInstallation(t);
  const collector = await startCollector(t);
  const service = await installation.serve({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } });
  const wire = openWire(service.url);
  t.after(() => wire.destroy());
  const asked = [
    ['PATCH', '/plants', 'PATCH', undefined, 'PATCH'],
    ['PROPFIND', '/plants', '_OTHER', 'PROPFIND', 'HTTP'],
    ['M-SEARCH', '/nothing', '_OTHER', 'M-SEARCH', 'HTTP'],
  ] as const;
  for (const [method, path] of asked) {
    wire.send(renderRequest({ method, path, headers: [['connection', 'keep-alive']] }));
    await wire.answer();
  }
  await service.stop();
  assert.deepEqual(
    collector
      .spans()
      .map(({ name, attributes }) => [
        attributes['http.request.method'],
        attributes['http.request.method_original'],
        name.split(' ')[0],
      ]),
    asked.map(([, , ...expected]) => expected),
  );
});

test('OTEL_* variables → set the service name and the sampling ratio', async (t) => {
  const installation = await newInstallation(t);
  const collector = await startCollector(t);
  const env = {
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces`,
    OTEL_SERVICE_NAME: 'herbarium',
    OTEL_TRACES_SAMPLER: 'parentbased_always_off',
  };
  const service = await installation.serve({ env });
  await fetch(`${service.url}/plants`);
  await fetch(`${service.url}/plants`, { headers: { traceparent: `00-${TRACE_ID}-${PARENT_ID}-01` } });
  await service.stop();
  const [span, ...others] = collector.spans();
  assert.deepEqual(others, []);
  assert.equal(span?.traceId, TRACE_ID);
  assert.equal(span.resource['service.name'], 'herbarium');
});

test('OTEL_* variables whose values do not work → a warning for each, and no lost spans', async (t) => {
  const installation = await newInstallation(t);
  const collector = await startCollector(t);
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_TRACES_SAMPLER: 'sometimes',
    OTEL_BSP_MAX_QUEUE_SIZE: '10',
    OTEL_EXPORTER_OTLP_TIMEOUT: '-1',
    OTEL_EXPORTER_OTLP_COMPRESSION: 'zip',
    OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere/ca.pem',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=plants,authorization: Secret',
  };
  const service = await installation.serve({ env });
  await fetch(`${service.url}/plants`);
  assert.equal((await service.stop()).code, 0);
  assert.equal(collector.spans().length, 1, JSON.stringify(service.log));
  const warnings = service.log.filter(({ msg }) => msg === WARNED).map(({ warning }) => String(warning));
  for (const pattern of [
    /SAMPLER/,
    /maxQueueSize/,
    /OTLP_TIMEOUT/,
    /COMPRESSION/,
    /root certificate/,
    /OTLP_HEADERS/,
  ])
    assert.equal(warnings.filter((warning) => pattern.test(warning)).length, 1, warnings.join('\n'));
  assert.ok(!service.log.some(({ msg }) => msg === NOT_SENT));
  assert.ok(!warnings.join().includes('Secret'));
});

test('collector accepts connections and never responds → requests and shutdown are not delayed', async (t) => {
  const silent = createServer((socket) => socket.on('error', () => undefined));
  const port = await listenOnFreePort(silent);
  t.after(() => void silent.close());
  const installation = await newInstallation(t);
  // Longer than the limit of a shutdown, after which the exit code is 1.
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
    OTEL_EXPORTER_OTLP_TIMEOUT: '120000',
  };
  const token = await installation.token();
  const service = await installation.serve({ env });
  assert.equal((await fetch(`${service.url}/plants`, { headers: bearer(token) })).status, 200);
  assert.equal((await service.stop()).code, 0);
  assert.deepEqual(spansLostIn(service.log), [1]);
});

test('collector unreachable → a line in the log', async (t) => {
  const installation = await newInstallation(t);
  const env = {
    // A name with several addresses gives an error without a message.
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://localhost:${await freePort()}`,
    OTEL_EXPORTER_OTLP_TIMEOUT: '300',
    OTEL_BSP_SCHEDULE_DELAY: '100',
  };
  const token = await installation.token();
  const service = await installation.serve({ env });
  assert.equal((await fetch(`${service.url}/plants`, { headers: bearer(token) })).status, 200);
  const { problem, level } = await service.logged(({ msg }) => msg === NOT_SENT);
  assert.match(String(problem), /^[^{]*(?:ECONNREFUSED|timed out|timeout)[^{]*$/i);
  assert.equal(level, 40);
  assert.equal((await service.stop()).code, 0);
});

test('collector rejects all spans → one line a minute and one at the stop, with the number of lost spans', async (t) => {
  let rejected = 0;
  const url = await serve(t, (request, response) => {
    rejected += 1;
    // Without a reason phrase, as in HTTP/2.
    request.resume().on('end', () => void response.writeHead(403, '').end('no such key'));
  });
  const installation = await newInstallation(t);
  const service = await installation.serve({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_SCHEDULE_DELAY: '10' },
  });
  await until(async () => (await fetch(`${service.url}/plants`)).ok === false && rejected >= 5);
  const isProblem = ({ msg }: { readonly msg?: unknown }): boolean => msg === NOT_SENT;
  await service.logged(isProblem);
  assert.equal((await service.stop()).code, 0);
  const problems = service.log.filter(isProblem);
  assert.equal(problems.length, 2);
  for (const { spans, problem } of problems) {
    assert.ok(Number(spans) >= 1);
    assert.equal(problem, 'HTTP 403');
  }
  assert.equal(service.log.at(-1)?.msg, 'stopped');
});

test('collector rejects the spans that a stop sends → their number is logged before the stop', async (t) => {
  const url = await serve(t, (request, response) => {
    request.resume().on('end', () => void response.writeHead(401, 'No Key').end());
  });
  const installation = await newInstallation(t);
  const service = await installation.serve({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_BSP_SCHEDULE_DELAY: '3600000' },
  });
  for (let requests = 0; requests < 3; requests += 1) await fetch(`${service.url}/plants`);
  assert.equal((await service.stop()).code, 0);
  assert.deepEqual(spansLostIn(service.log), [3]);
  assert.equal(service.log.find(({ msg }) => msg === NOT_SENT)?.problem, 'HTTP 401 No Key');
  assert.equal(service.log.at(-1)?.msg, 'stopped');
});

/** A response of a collector (opentelemetry/proto/collector/trace/v1/trace_service.proto). */
function partialSuccess(rejectedSpans: number, errorMessage: string): Buffer {
  const withLength = (text: Buffer): Buffer =>
    Buffer.from([0x80 | (text.length & 0x7f), text.length >> 7, ...text]);
  const content = Buffer.from([0x08, rejectedSpans, 0x12, ...withLength(Buffer.from(errorMessage))]);
  return Buffer.from([0x0a, ...withLength(content)]);
}

for (const [what, body, msg, text, spans] of [
  ['a part of the spans', partialSuccess(2, 'over the quota'), NOT_SENT, /over the quota$/, 2],
  ['a part of the spans, without a message', partialSuccess(2, ''), NOT_SENT, /^[^{]*$/, 2],
  ['all spans, with a warning', partialSuccess(0, 'near the quota'), WARNED, /near the quota$/, undefined],
  [
    'all spans, with a long warning',
    partialSuccess(0, 'near '.repeat(1_000)),
    WARNED,
    /^.{1000}$/,
    undefined,
  ],
  ['all spans, but its response is malformed', 'OK', WARNED, /could not deserialize .*wire type/, undefined],
] as const) {
  test(`collector accepts ${what} → its message in a line`, async (t) => {
    const url = await serve(t, (request, response) => {
      request.resume().on('end', () => void response.end(body));
    });
    const installation = await newInstallation(t);
    const service = await installation.serve({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: url } });
    for (let requests = 0; requests < 3; requests += 1) await fetch(`${service.url}/plants`);
    assert.equal((await service.stop()).code, 0);
    const [line, ...others] = service.log.filter((one) => one.msg === NOT_SENT || one.msg === WARNED);
    assert.deepEqual([line?.msg, line?.spans, others], [msg, spans, []]);
    assert.match(String(line?.problem ?? line?.warning), text);
  });
}

test('collector is slower than the spans → the number of spans without room in the queue is logged', async (t) => {
  const held = Promise.withResolvers<() => void>();
  const url = await serve(t, (request, response) => {
    request.resume().on('end', () => held.resolve(() => void response.end()));
  });
  const installation = await newInstallation(t);
  const service = await installation.serve({
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
      OTEL_BSP_MAX_QUEUE_SIZE: '1',
    },
  });
  const request = () => fetch(`${service.url}/plants`);
  await request();
  const release = await held.promise;
  for (let queued = 0; queued < 4; queued += 1) await request();
  release();
  const line = service.logged(({ msg }) => msg === NOT_SENT);
  const requests = setInterval(request, 50);
  const { spans, problem } = await line.finally(() => clearInterval(requests));
  assert.ok(Number(spans) >= 3, String(problem));
});

for (const { what, queue, status, lost } of [
  { what: 'find no room in the queue', queue: '1', status: 200, lost: 3 },
  { what: 'are rejected in several batches', queue: '10', status: 400, lost: 5 },
])
  test(`spans ${what}, and the service stops → their number is logged before the stop`, async (t) => {
    const arrived = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const url = await serve(t, (request, response) => {
      request.resume().on('end', async () => {
        arrived.resolve();
        await released.promise;
        response.writeHead(status).end();
      });
    });
    const installation = await newInstallation(t);
    const service = await installation.serve({
      env: {
        OTEL_EXPORTER_OTLP_ENDPOINT: url,
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
        OTEL_BSP_MAX_QUEUE_SIZE: queue,
      },
    });
    await fetch(`${service.url}/plants`);
    await arrived.promise;
    // The first of these has room.
    for (let queued = 0; queued < 4; queued += 1) await fetch(`${service.url}/plants`);
    released.resolve();
    assert.equal((await service.stop()).code, 0);
    const sum = spansLostIn(service.log).reduce((total: number, spans) => total + Number(spans), 0);
    assert.equal(sum, lost);
    assert.equal(service.log.at(-1)?.msg, 'stopped');
  });

test('tracing off → no file of OpenTelemetry is loaded', async (t) => {
  const installation = await newInstallation(t);
  const token = await installation.token();
  for (const [variables, loaded] of [
    [{}, /^loaded 0$/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_SDK_DISABLED: 'true' }, /^loaded 0$/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT }, /^loaded [1-9]/],
  ] as const) {
    const service = await installation.serve({ env: { ...variables, NODE_OPTIONS: COUNT_LOADED } });
    assert.equal((await fetch(`${service.url}/plants`, { headers: bearer(token) })).status, 200);
    const { stderr, stdout } = await service.stop();
    assert.match(stderr, loaded);
    assert.equal(stdout.includes('traceId'), stderr !== 'loaded 0');
  }
});
