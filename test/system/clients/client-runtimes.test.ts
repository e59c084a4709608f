import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { launchBrowser, PLAIN_HOST } from '../../support/clients/browser.ts';
import { freshFolder } from '../../support/engines.ts';
import { npmInstall, packClient } from '../../support/packages.ts';
import { freePort } from '../../support/servers/free-port.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { startService, type TestService } from '../../support/service.ts';

/** Runs the published client, as a user installs it, on every platform that it names. */

const README = await readFile(new URL('../../../client/README.md', import.meta.url), 'utf8');
const [, SAMPLE = '', PRINTED = ''] = /```js\n(import .*?)```\n+```text\n(.*?)```/s.exec(README) ?? [];
const run = promisify(execFile);

/** Addresses and token for a run. */
interface Settings {
  readonly url: string;
  readonly token: string;
  /** A server that answers each request with 503 twice, then like the service. */
  readonly busy: string;
  /** A server that redirects. */
  readonly redirecting: string;
  /** An address where nothing listens. */
  readonly nowhere: string;
}

/** Resolves to what the platform observed. It has only JavaScript that all platforms run. */
const PROGRAM = `
import { createClient, ErrorCode, PlantStoreError } from 'plant-store-client';

export async function observe({ url, token, busy, redirecting, nowhere }) {
  const failureOf = (call) => call.then(() => undefined, (failure) => failure);
  const client = createClient({ url, token });
  const ids = [-9223372036854775808n, 9007199254740992n, 9007199254740993n, 9223372036854775807n];
  const replayed = [];
  for (const id of [...ids, ids[0]]) {
    replayed.push((await client.createPlant({ id, name: String(id) }, { idempotencyKey: 'key-' + id })).replayed);
  }
  await client.deletePlant(9007199254740992n);

  const pages = [];
  let saved;
  for await (const { plants, cursor } of client.listPlants({ pageSize: 1 }).pages()) {
    pages.push(plants.map(({ name }) => name).join());
    saved ??= cursor;
  }
  const rest = [];
  for await (const { name } of client.listPlants({ cursor: saved })) rest.push(name);

  const taken = await failureOf(client.createPlant({ id: ids[3], name: 'Oak' }));
  const attempts = [];
  const patient = createClient({
    url: busy,
    token,
    afterAttempt: ({ attempt, response }) => attempts.push([attempt, response.status]),
  });
  const { plant } = await patient.createPlant({ id: 7, name: 'Fern' });

  const redirected = await failureOf(createClient({ url: redirecting, token }).createPlant({ id: 8, name: 'Oak' }));
  const unreached = await failureOf(createClient({ url: nowhere, token, retries: 0 }).createPlant({ id: 9, name: 'Oak' }));
  const endless = createClient({ url, token: () => new Promise(() => {}), timeoutMs: 50 });
  const withoutToken = await failureOf(endless.deletePlant(7));
  return {
    replayed, pages, rest, attempts, created: plant.name,
    taken: [taken instanceof PlantStoreError, taken.code === ErrorCode.idTaken, typeof taken.requestId],
    redirected: [redirected.message.replaceAll(redirecting, 'URL'), redirected.outcomeUnknown],
    unreached: [unreached instanceof PlantStoreError, unreached.outcomeUnknown],
    withoutToken: withoutToken.message.replaceAll(url, 'URL'),
  };
}
`;

/** Loads nothing by itself. Names the client as a bundler would. */
const PAGE = `<!doctype html><script type="importmap">{"imports":{"plant-store-client":"/client.js"}}</script>`;

const OBSERVED = {
  replayed: [false, false, false, false, true],
  pages: ['-9223372036854775808', '9007199254740993', '9223372036854775807'],
  rest: ['9007199254740993', '9223372036854775807'],
  attempts: [
    [1, 503],
    [2, 503],
    [3, 200],
  ],
  created: 'Fern',
  taken: [true, true, 'string'],
  redirected: ['POST URL/plants was redirected to https://plants.example/; fix the option url', false],
  unreached: [true, false],
  withoutToken: 'no token for DELETE URL/plants/7 within 50 ms; raise timeoutMs',
};

const folder = await freshFolder();
const tarball = await packClient(folder);

async function startOnFile(t: TestContext, corsOrigin: string): Promise<TestService> {
  return startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`, { corsOrigin });
}

/** A server that any page may use. Answers preflight requests. */
function serveToPages(t: TestContext, listener: (response: ServerResponse) => void): Promise<string> {
  return serve(t, ({ method }, response) => {
    response.setHeader('access-control-allow-origin', '*');
    response.setHeader('access-control-allow-headers', 'authorization, content-type, idempotency-key');
    if (method === 'OPTIONS') response.writeHead(204).end();
    else listener(response);
  });
}

async function settingsFor(t: TestContext, service: TestService): Promise<Settings> {
  let requests = 0;
  return {
    url: service.url,
    token: await service.token(),
    busy: await serveToPages(t, (response) => {
      requests += 1;
      if (requests < 3) response.writeHead(503).end('{"error":50301,"message":"overloaded"}');
      else response.end('{"name":"Fern"}');
    }),
    redirecting: await serveToPages(t, (response) => {
      response.writeHead(307, { location: 'https://plants.example/' }).end();
    }),
    nowhere: `http://127.0.0.1:${await freePort()}`,
  };
}

/** The sample of the README with the address and the token of a service. */
function sampleFor(url: string, token: string): string {
  return SAMPLE.replace('http://127.0.0.1:8080', url).replace('plt_…', token);
}

test('the README of the client has the sample and its output', () => {
  assert.match(SAMPLE, /createClient/);
  assert.match(PRINTED, /^Black alder/);
});

describe('the installed client', () => {
  for (const { title, packages, command } of [
    { title: 'Node 20', packages: ['node@20'], command: ['node'] },
    { title: 'Node 24', packages: ['node@24'], command: ['node'] },
    { title: 'this Node', packages: [], command: [process.execPath] },
    { title: 'Bun', packages: ['bun@1.4.4'], command: ['bun', 'run'] },
    { title: 'Deno', packages: ['deno@2.9.6'], command: ['deno', 'run', '--allow-net'] },
  ]) {
    test(`on ${title} → runs the sample of its README, with exact ids, pages, retries and errors`, async (t) => {
      const project = join(folder, title);
      await mkdir(project);
      await writeFile(join(project, 'package.json'), '{"private":true,"type":"module"}');
      if (packages.length > 0) await npmInstall(project, ...packages);
      await npmInstall(project, tarball);
      const service = await startOnFile(t, '');
      const settings = await settingsFor(t, service);
      await writeFile(join(project, 'program.js'), PROGRAM);
      await writeFile(
        join(project, 'observe.js'),
        `import { observe } from './program.js';\nconsole.log(JSON.stringify(await observe(${JSON.stringify(settings)})));\n`,
      );
      await writeFile(join(project, 'sample.js'), sampleFor(service.url, await service.token('bob')));
      const [program = '', ...args] = command;
      const path = program.startsWith('/') ? program : join(project, 'node_modules', '.bin', program);
      const { stdout } = await run(path, [...args, 'observe.js'], { cwd: project });
      assert.deepEqual(JSON.parse(stdout), OBSERVED);
      assert.equal((await run(path, [...args, 'sample.js'], { cwd: project })).stdout, PRINTED);
      await service.close();
    });
  }

  test('on a page of a plain HTTP host → the same; the page hides the target of a redirect', async (t) => {
    const project = join(folder, 'page');
    await mkdir(project);
    await writeFile(join(project, 'package.json'), '{"private":true}');
    await npmInstall(project, tarball);
    const dist = join(project, 'node_modules', 'plant-store-client', 'dist');
    const scripts = new Map([['/program.js', PROGRAM]]);
    const port = Number(
      new URL(
        await serve(t, async ({ url = '' }, response) => {
          const script =
            scripts.get(url) ?? (await readFile(join(dist, url.slice(1)), 'utf8').catch(() => ''));
          if (script !== '') response.setHeader('content-type', 'text/javascript').end(script);
          else response.setHeader('content-type', 'text/html').end(PAGE);
        }),
      ).port,
    );
    const origin = `http://${PLAIN_HOST}:${port}`;
    const service = await startOnFile(t, origin);
    const settings = await settingsFor(t, service);
    scripts.set('/sample.js', sampleFor(service.url, await service.token('bob')));

    const browser = await launchBrowser();
    t.after(() => browser.close());
    const page = await browser.newPage();
    const printed: string[] = [];
    page.on('console', (message) => {
      if (message.type() === 'log') printed.push(`${message.text()}\n`);
    });
    await page.goto(`${origin}/`);
    assert.equal(await page.evaluate('isSecureContext'), false);
    const observed = await page.evaluate(
      `import('/program.js').then(({ observe }) => observe(${JSON.stringify(settings)}))`,
    );
    assert.deepEqual(observed, {
      ...OBSERVED,
      redirected: ['POST URL/plants was redirected; fix the option url', false],
      unreached: [true, true],
    });
    await page.evaluate("import('/sample.js')");
    assert.equal(printed.join(''), PRINTED);
    await service.close();
  });
});
