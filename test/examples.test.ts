import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { engines } from './engines.ts';
import { startService } from './service.ts';

const EXAMPLE = fileURLToPath(new URL('../examples/create-and-list.ts', import.meta.url));
const CLIENT_EXAMPLE = fileURLToPath(new URL('../examples/client.ts', import.meta.url));
const DOCUMENT = await readFile(new URL('../docs/client.md', import.meta.url), 'utf8');

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

  test(`the example of the client does what it says on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const args = [CLIENT_EXAMPLE, service.url, await service.token()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    assert.equal(
      stdout,
      `Black alder, Alnus glutinosa\n40400: there is no plant with the id ${2n ** 63n - 1n}\n`,
    );
    await service.close();
  });

  for (const [heading, shell, printed] of [
    ['curl', ['bash', '-ec'], '{"name":"Black alder"}[{"name":"Black alder"}]'],
    ['Python', ['python3', '-c'], "[{'name': 'Black alder'}]\n"],
  ] as const) {
    test(`what the documents send by ${heading} creates, lists and deletes on ${engine.name}`, async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const script = new RegExp(`## ${heading}\n.*?\`\`\`\\w+\n(.*?)\`\`\``, 's').exec(DOCUMENT)?.[1] ?? '';
      const [program, flag] = shell;
      const env = { PATH: process.env.PATH, TOKEN: await service.token() };
      const run = promisify(execFile)(
        program,
        [flag, script.replaceAll('http://127.0.0.1:8080', service.url)],
        { env },
      );
      assert.equal((await run).stdout, printed);
      const left = await service.store.listPlants('alice', { from: -(2n ** 63n), to: 2n ** 63n - 1n }, 1);
      assert.equal(left.json, '[]');
      await service.close();
    });
  }
}
