import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { request as connectTo, type ServerResponse } from 'node:http';
import { relative } from 'node:path';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createClient } from '../../../client/src/client.ts';
import { engines } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { startService } from '../../support/service.ts';
import { upTo } from '../../support/store-setup.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../../../examples/create-and-list.ts', import.meta.url));
const CLIENT_EXAMPLE = fileURLToPath(new URL('../../../examples/client.ts', import.meta.url));
const DOCUMENT = await readFile(new URL('../../../docs/client.md', import.meta.url), 'utf8');

test('an example with an empty argument prints its usage', async () => {
  for (const example of [EXAMPLE, CLIENT_EXAMPLE])
    for (const args of [[], ['', 'plt_'], ['http://127.0.0.1:8080', '']])
      await assert.rejects(promisify(execFile)(process.execPath, [example, ...args]), {
        code: 1,
        stdout: '',
        stderr: `usage: npx node ${relative(ROOT, example)} URL TOKEN\n`,
      });
});

for (const engine of engines) {
  test(`the example creates, lists and deletes the 630 plants of its file on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const args = [EXAMPLE, service.url, await service.token()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    assert.equal(
      stdout,
      'created 630 plants\nlisted 630 plants in pages of 100, equal to the file\ndeleted 630 plants\n',
    );
    const left = await service.store.listPlants('alice', { from: -(2n ** 63n), to: 2n ** 63n - 1n }, upTo(1));
    assert.equal(left.json, '[]');
    await service.close();
  });

  test(`the example changes nothing for an owner who has plants, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const token = await service.token();
    const client = createClient({ url: service.url, token });
    await client.createPlant({ id: 7, name: 'Fern' });
    await assert.rejects(promisify(execFile)(process.execPath, [EXAMPLE, service.url, token]), {
      code: 1,
      stdout: '',
      stderr: 'this owner has plants; use the token of an owner without plants\n',
    });
    assert.deepEqual(await Array.fromAsync(client.listPlants()), [{ name: 'Fern' }]);

    const { stdout } = await promisify(execFile)(process.execPath, [CLIENT_EXAMPLE, service.url, token]);
    assert.match(stdout, /^Fern, no tag\nBlack alder, /);
    await service.close();
  });

  test(`the example deletes its plants when it fails, and prints the reason in a line, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const token = await service.token();
    const front = await startFront(t, service.url, (response) => {
      response.writeHead(503).end('{"error":50300,"message":"later"}');
    });
    await assert.rejects(promisify(execFile)(process.execPath, [EXAMPLE, front, token]), {
      code: 1,
      stdout: /^deleted \d+ plants\n$/,
      stderr: '503: {"error":50300,"message":"later"}\n',
    });
    const client = createClient({ url: service.url, token });
    assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
    await service.close();
  });

  test(`the example deletes its plants on Ctrl-C, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const token = await service.token();
    const front = await startFront(t, service.url, () => void run.child.kill('SIGINT'));
    const run = promisify(execFile)(process.execPath, [EXAMPLE, front, token]);
    await assert.rejects(run, { code: 1, stdout: /^deleted [1-5]?\d\d plants\n$/, stderr: 'stopped\n' });
    const client = createClient({ url: service.url, token });
    assert.deepEqual(await Array.fromAsync(client.listPlants()), []);
    await service.close();
  });

  test(`the example of the client prints the documented output on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const args = [CLIENT_EXAMPLE, service.url, await service.token()];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    assert.equal(
      stdout,
      `Black alder, Alnus glutinosa\n40400: there is no plant with the id ${2n ** 63n - 1n}\n`,
    );
    await service.close();
  });

  test(`the example of the client fails → exit code 1 and the error, on ${engine.name}`, async (t) => {
    const service = await startService(t, await engine.freshUrl(t));
    const nowhere = `http://127.0.0.1:${await freePort()}`;
    for (const [url, stderr] of [
      [service.url, /PlantStoreError: .*\n[\s\S]*code: 40101/],
      [nowhere, /PlantStoreError: no answer from POST .*ECONNREFUSED/],
    ] as const)
      await assert.rejects(promisify(execFile)(process.execPath, [CLIENT_EXAMPLE, url, 'plt_wrong']), {
        code: 1,
        stdout: '',
        stderr,
      });
    await service.close();
  });

  for (const [heading, tool, shell, printed] of [
    ['curl', 'curl', ['bash', '-ec'], '{"name":"Black alder"}[{"name":"Black alder"}]'],
    ['Python', 'python3', ['python3', '-c'], "[{'name': 'Black alder'}]\n"],
  ] as const) {
    test(
      `the requests of the documents with ${heading} create, list and delete on ${engine.name}`,
      needsProgram(tool),
      async (t) => {
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
        const left = await service.store.listPlants(
          'alice',
          { from: -(2n ** 63n), to: 2n ** 63n - 1n },
          upTo(1),
        );
        assert.equal(left.json, '[]');
        await service.close();
      },
    );
  }
}

/**
 * A server that forwards requests to the service. It calls `atCreation` at the 100th creation, and forwards that
 * unless it was answered.
 */
function startFront(
  t: TestContext,
  serviceUrl: string,
  atCreation: (response: ServerResponse) => void,
): Promise<string> {
  let created = 0;
  return serve(t, (request, response) => {
    const { method, headers, url = '' } = request;
    if (method === 'POST' && ++created === 100) atCreation(response);
    if (response.writableEnded) return;
    const onwards = connectTo(serviceUrl + url, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    request.pipe(onwards);
  });
}
