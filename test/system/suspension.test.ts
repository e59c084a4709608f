import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { FORCED_EXIT_MS } from '../../src/cli/commands/serve-command.ts';
import { openWire } from '../support/clients/raw-connection.ts';
import { renderRequest } from '../support/clients/raw-http.ts';
import { until } from '../support/patience.ts';
import { newInstallation, type Service } from '../support/program.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const REVOKED_WITHIN_MS = 1_000;
const HEADER_TIMEOUT_MS = 4_000;
const CERTIFICATE = fileURLToPath(new URL('../support/certificates/first', import.meta.url));

it('token revoked while the busy service is suspended → 401 for requests sent a second later', async (t) => {
  const installation = await newInstallation(t);
  const token = await installation.token('alice');
  const [{ id }] = JSON.parse((await installation.run(['token', 'list', '--json'])).stdout);
  const service = await installation.serve({ env: PRODUCTION });
  const listing = `GET /plants?limit=1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  const wires = Array.from({ length: 40 }, () => openWire(service.url));
  let answers = 0;
  let isSuspended = false;
  const early = wires.map(async (wire) => {
    do {
      wire.send(listing);
      await wire.answer();
      answers += 1;
    } while (!isSuspended);
  });
  await until(() => answers > 1_000);
  service.kill('SIGSTOP');
  isSuspended = true;
  assert.equal((await installation.run(['token', 'revoke', id])).code, 0);
  await setTimeout(REVOKED_WITHIN_MS);
  // Each of them waits behind a request that the service has not read either.
  for (const wire of wires) wire.send(listing);
  service.kill('SIGCONT');
  await Promise.all(early);
  const late = await Promise.all(wires.map((wire) => wire.answer()));
  for (const wire of wires) wire.destroy();
  assert.deepEqual(new Set(late.map((answer) => answer?.status)), new Set([401]));
  assert.equal((await service.stop()).code, 0);
});

it('service suspended in a TLS handshake, longer than the header timeout → the handshake succeeds', async (t) => {
  const installation = await newInstallation(t);
  const token = await installation.token('alice');
  const tls = ['--tls-cert', `${CERTIFICATE}.pem`, '--tls-key', `${CERTIFICATE}.key`];
  const flags = [...tls, '--header-timeout', String(HEADER_TIMEOUT_MS)];
  const service = await installation.serve({ env: PRODUCTION, flags });
  const silent = connect(Number(new URL(service.url).port), '127.0.0.1');
  await until(async () => /^plant_store_http_connections 1$/m.test(await metricsOf(service)));
  service.kill('SIGSTOP');
  const socket = connectTls({ socket: silent, rejectUnauthorized: false });
  const request = renderRequest({ method: 'GET', path: '/plants', headers: Object.entries(bearer(token)) });
  socket.write(request);
  await setTimeout(HEADER_TIMEOUT_MS + 500);
  service.kill('SIGCONT');
  const [response] = await once(socket, 'data');
  assert.match(String(response), /^HTTP\/1\.1 200 OK\r\n/);
  socket.destroy();
  assert.equal((await service.stop()).code, 0);
});

it('service suspended while it stops, longer than a stop may take → request in flight succeeds, exit code 0', async (t) => {
  const installation = await newInstallation(t);
  const token = await installation.token('alice');
  const service = await installation.serve({ env: PRODUCTION });
  const wire = openWire(service.url);
  const head = `POST /plants HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n`;
  wire.send(`${head}Content-Type: application/json\r\nContent-Length: 19\r\nExpect: 100-continue\r\n\r\n`);
  // 100 Continue: the headers were accepted.
  await until(() => wire.surplus() > 0);
  service.kill('SIGTERM');
  await service.logged(({ msg }) => msg === 'stopping');
  service.kill('SIGSTOP');
  wire.send('{"id":7,"name":"x"}');
  await setTimeout(FORCED_EXIT_MS);
  service.kill('SIGCONT');
  assert.equal((await wire.answer())?.status, 200);
  assert.equal((await service.ended).code, 0);
});

async function metricsOf({ adminUrl }: Service): Promise<string> {
  return (await fetch(`${adminUrl}/metrics`)).text();
}
