import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { INT64_MAX, INT64_MIN } from '../../src/plant.ts';
import { read } from '../support/deploy-files.ts';
import { needsProgram } from '../support/needs.ts';
import { newInstallation } from '../support/program.ts';
import { runScript } from '../support/shell-script.ts';

test(
  'the commands that delete an owner → none of its plants is left, its tokens are revoked, others keep theirs',
  needsProgram('curl'),
  async (t) => {
    const [, script = ''] =
      /\n## Delete an owner\n.*?```sh\n(.*?)```/s.exec(read('docs/data.md')) ?? assert.fail('no commands');
    const store = await newInstallation(t);
    const name = '\n{"id":5,"name":"x"}';
    const plants = [INT64_MIN, -1n, 0n, 5n, 2n ** 53n + 1n, INT64_MAX].map(
      (id) => `{"id":${id},"name":${JSON.stringify(name)}}\n`,
    );
    const file = join(store.folder, 'input.ndjson');
    await writeFile(file, plants.join(''));
    for (const owner of ['alice', 'alice2']) {
      assert.equal((await store.run(['import', owner, file])).code, 0);
      await store.token(owner);
      await store.token(owner, '--scope', 'plants:read');
    }
    const service = await store.serve();

    const stdout = await runScript(
      store,
      `set -e\n${script.replaceAll('http://127.0.0.1:8080', service.url)}`,
    );

    assert.match(stdout, /^(?:revoked \S+ of alice\n){3}\s*0\n$/);
    assert.equal((await store.run(['export', 'alice'])).stdout, '');
    assert.equal((await store.run(['export', 'alice2'])).stdout, plants.join(''));
    const { stdout: list } = await store.run(['token', 'list', '--json']);
    const tokens: { owner: string; state: string }[] = JSON.parse(list);
    assert.deepEqual(tokens.map(({ owner, state }) => `${owner} ${state}`).sort(), [
      'alice revoked',
      'alice revoked',
      'alice revoked',
      'alice2 valid',
      'alice2 valid',
    ]);
    await service.stop();
  },
);
