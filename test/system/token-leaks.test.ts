import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { mintSecret } from '../../src/token.ts';
import { secretPart } from '../support/data/secret-part.ts';
import { engines } from '../support/engines.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { startCollector } from '../support/servers/otlp-collector.ts';
import { bearer } from '../support/service.ts';

/** Sends a token in every possible place, valid and invalid. Resolves to all responses. */
async function show(service: Service, secret: string): Promise<string> {
  const json = { ...bearer(secret), 'content-type': 'application/json' };
  const attempts: readonly (readonly [path: string, init: RequestInit])[] = [
    ['/plants', { headers: bearer(secret) }],
    ['/plants', { headers: { authorization: `Basic ${secret}` } }],
    ['/plants', { headers: { authorization: secret } }],
    ['/plants', { headers: { ...bearer(secret), cookie: secret, 'x-request-id': secret } }],
    [`/plants?access_token=${secret}`, {}],
    [`/plants?limit=${secret}`, { headers: bearer(secret) }],
    [`/plants?cursor=${secret}`, { headers: bearer(secret) }],
    [`/plants/${secret}`, { method: 'DELETE', headers: bearer(secret) }],
    [`/${secret}`, { headers: bearer(secret) }],
    [`/plants/${secret}/${secret}`, { method: 'PUT', headers: bearer(secret) }],
    ['/plants', { method: 'POST', headers: json, body: secret }],
    ['/plants', { method: 'POST', headers: json, body: `{"id":"${secret}","name":"Alder"}` }],
    ['/plants', { method: 'POST', headers: json, body: `{"${secret}":1}` }],
    ['/plants', { method: 'POST', headers: { ...json, 'idempotency-key': `${secret} ` }, body: '{}' }],
    ['/plants', { method: 'POST', headers: { ...json, 'content-type': secret }, body: '{}' }],
    ['/plants', { method: 'POST', headers: { ...json, 'content-encoding': secret }, body: '{}' }],
  ];
  const answers = attempts.map(async ([path, init]) => {
    const answer = await fetch(service.url + path, init);
    return `${JSON.stringify([...answer.headers])} ${await answer.text()}`;
  });
  const broken = [
    `GET /plants HTTP/1.1\r\nAuthorization Bearer ${secret}\r\n\r\n`,
    `${secret} /plants HTTP/1.1\r\nHost: a\r\n\r\n`,
    `GET /plants HTTP/1.1\r\nHost: a\r\nExpect: ${secret}\r\n\r\n`,
    `GET /%zz${secret} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
  ];
  const raw = broken.map((message) => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1');
    socket.end(message);
    return text(socket);
  });
  return (await Promise.all([...answers, ...raw])).join('\n');
}

for (const engine of engines) {
  test(`log, errors, metrics, traces, process titles and files contain no token, on ${engine.name}`, async (t) => {
    const installation = await newInstallation(t);
    const collector = await startCollector(t);
    const url = engine.name === 'sqlite' ? installation.databaseUrl : await engine.freshUrl(t);
    const env = {
      DATABASE_URL: url,
      NODE_ENV: 'production',
      LOG_LEVEL: 'trace',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    };
    const made = await installation.run(['token', 'create', 'alice'], { env });
    const narrow = await installation.run(['token', 'create', 'bob', '--scope', 'plants:write'], { env });
    const revoked = await installation.run(['token', 'create', 'carol'], { env });
    const { token } = JSON.parse(revoked.stderr);
    const revoking = await installation.run(['token', 'revoke', token], { env });
    const listed = await installation.run(['token', 'list', '--json'], { env });
    const secrets = [...[made, narrow, revoked].map(({ stdout }) => stdout.trim()), mintSecret()];

    const service = await installation.serve({ env });
    const answers: string[] = [];
    for (const secret of secrets) answers.push(await show(service, secret));
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    const elsewhere = await (await fetch(`${service.adminUrl}/${secrets[0]}`)).text();
    const titles = ['cmdline', 'comm'].map((file) => readIfThere(`/proc/${service.pid}/${file}`));
    const files = ['', '-wal', '-shm'].map((suffix) => readIfThere(installation.file + suffix));
    const { stdout, stderr } = await service.stop();

    const places: Readonly<Record<string, string>> = {
      log: stdout + stderr,
      'output of commands':
        [made, narrow, revoked, revoking].map((ended) => ended.stderr).join('') + listed.stdout,
      answers: answers.join('\n') + elsewhere,
      metrics,
      traces: Buffer.concat(collector.messages).toString('latin1'),
      titles: titles.join('\n'),
      files: files.join('\n'),
    };
    for (const [name, content] of Object.entries(places))
      for (const secret of secrets)
        assert.ok(!content.includes(secretPart(secret)), `a token is in the ${name}`);

    // Proves that each output has content; an empty one would pass the search.
    assert.match(places.log ?? '', /"msg":"answered"/);
    assert.match(places['output of commands'] ?? '', /tokenRevoked/);
    assert.match(places.answers ?? '', /"error":40101/);
    assert.match(metrics, /status="401"/);
    assert.match(places.traces ?? '', /GET \/plants/);
    if (existsSync('/proc')) assert.match(places.titles ?? '', /plant-store/);
    if (engine.name === 'sqlite') assert.match(places.files ?? '', /alice/);
  });
}

function readIfThere(file: string): string {
  return existsSync(file) ? readFileSync(file, 'latin1') : '';
}
