import assert from 'node:assert/strict';
import { test } from 'node:test';
import { execute, postgres } from '../../support/engines.ts';
import { bearer, startService } from '../../support/service.ts';

test('a table is missing, as during a restore over it → 50300, nothing stored, and not ready', async (t) => {
  const url = await postgres.freshUrl(t);
  const service = await startService(t, url);
  const headers = { ...bearer(await service.token()), 'content-type': 'application/json' };
  await execute(url, 'ALTER TABLE plants RENAME TO others');
  const plants = `${service.url}/plants`;
  for (const response of [
    await fetch(plants, { headers }),
    await fetch(plants, { headers, method: 'POST', body: '{"id":1,"name":"Alder"}' }),
    await fetch(`${plants}/1`, { headers, method: 'DELETE' }),
  ]) {
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '1']);
    const { error, message } = (await response.json()) as { error: number; message: string };
    assert.equal(error, 50300);
    assert.doesNotMatch(message, /unknown|may have/);
  }
  const unready = await fetch(`${service.adminUrl}/ready`);
  assert.equal(unready.status, 503);
  assert.match(await unready.text(), /relation .*plants.* does not exist/);

  await execute(url, 'ALTER TABLE others RENAME TO plants');
  assert.equal((await fetch(plants, { headers })).status, 200);
  assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
});
