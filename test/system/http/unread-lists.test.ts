import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { renderRequest } from '../../support/clients/raw-http.ts';
import { engines } from '../../support/engines.ts';
import { MEBIBYTE } from '../../support/process-resources.ts';
import { bearer, startService } from '../../support/service.ts';
import { create } from '../../support/store-setup.ts';

/** More plants of 2 MiB than the operating system buffers for a client that does not read. */
const UNREAD_PLANTS = 12;

for (const engine of engines) {
  test(`list whose first plant gets no memory, since a client does not read → 50301, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t), {
      sendBufferLimit: String(8 * MEBIBYTE),
    });
    const [alice, bob] = [bearer(await service.token()), bearer(await service.token('bob'))];
    const name = 'x'.repeat(2 * MEBIBYTE);
    for (let id = 0n; id < UNREAD_PLANTS; id += 1n) await service.store.write(create(id, { name }));
    await service.store.write(create(0n, { owner: 'bob', name }));
    const { hostname, port } = new URL(service.url);
    const unread = connect(Number(port), hostname);
    unread.write(renderRequest({ method: 'GET', path: '/plants', headers: Object.entries(alice) }));
    await once(unread, 'readable');
    // The unread list holds its memory from the moment when the operating system takes no more of it.
    let answer: Response;
    let body: string;
    do {
      answer = await fetch(`${service.url}/plants`, { headers: bob });
      body = await answer.text();
    } while (answer.status === 200);
    assert.deepEqual([answer.status, answer.headers.get('retry-after')], [503, '1']);
    assert.match(body, /"error":50301/);
    unread.destroy();
  });
}
