import assert from 'node:assert/strict';
import { it } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { openWire } from '../support/clients/raw-connection.ts';
import { until } from '../support/patience.ts';
import { newInstallation } from '../support/program.ts';

const PRODUCTION = { NODE_ENV: 'production' };
const REVOKED_WITHIN_MS = 1_000;

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
