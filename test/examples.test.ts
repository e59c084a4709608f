import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { engines } from './engines.ts';
import { startService } from './service.ts';

const EXAMPLE = fileURLToPath(new URL('../examples/create-and-list.ts', import.meta.url));

for (const engine of engines) {
  test(`the example creates, lists and deletes the 630 plants of its file on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const args = [EXAMPLE, service.url, await service.token()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    assert.equal(
      stdout,
      'created 630 plants\nlisted 630 plants in pages of 100, equal to the file\ndeleted 630 plants\n',
    );
    const left = await service.store.listPlants('alice', { from: -(2n ** 63n), to: 2n ** 63n - 1n }, 1);
    assert.equal(left.json, '[]');
    await service.close();
  });
}
