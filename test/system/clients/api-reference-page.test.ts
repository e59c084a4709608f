import assert from 'node:assert/strict';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import type { Browser, Locator, Page } from 'playwright-core';
import { operations } from '../../../src/http/app.ts';
import { launchBrowser } from '../../support/clients/browser.ts';
import { freshFolder } from '../../support/engines.ts';
import { until } from '../../support/patience.ts';
import { serve } from '../../support/servers/stub-server.ts';
import { bearer, startService, type TestService } from '../../support/service.ts';

/** A page whose requests and errors are recorded. */
interface Watched {
  readonly page: Page;
  /** The origins of its requests, such as `http://host:port`. */
  readonly origins: ReadonlySet<string>;
  /** Errors, and violations of the Content-Security-Policy. */
  readonly complaints: readonly string[];
}

/** Logs policy violations on the console, which the recorder reads. */
const REPORT_VIOLATIONS = `addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) =>
  console.error('the policy blocks ' + effectiveDirective + ' ' + blockedURI));`;

/** Computes the contrast (WCAG 2) of each color of texts on each of their backgrounds. */
const CONTRASTS = `(() => {
  const context = document.createElement('canvas').getContext('2d');
  const luminanceOf = (variable) => {
    context.fillStyle = getComputedStyle(document.body).getPropertyValue('--scalar-' + variable);
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = Array.from(context.getImageData(0, 0, 1, 1).data, (value) =>
      value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return Object.fromEntries(['1', '2', '3', 'green', 'red', 'blue', 'orange'].flatMap((text) =>
    ['1', '2'].map((background) => {
      const [darker, lighter] = [luminanceOf('color-' + text), luminanceOf('background-' + background)].sort((a, b) => a - b);
      return [text + ' on ' + background, (lighter + 0.05) / (darker + 0.05)];
    })));
})()`;

let launched: Promise<Browser> | undefined;
after(async () => (await launched)?.close());

async function openPage(t: TestContext): Promise<Watched> {
  launched ??= launchBrowser();
  const context = await (await launched).newContext({ viewport: { width: 1280, height: 900 } });
  t.after(() => context.close());
  context.setDefaultTimeout(30_000);
  await context.addInitScript(REPORT_VIOLATIONS);
  const origins = new Set<string>();
  const complaints: string[] = [];
  const page = await context.newPage();
  context.on('request', (request) => origins.add(new URL(request.url()).origin));
  page.on('websocket', (socket) => origins.add(new URL(socket.url()).origin));
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  return { page, origins, complaints };
}

async function startOnFile(t: TestContext, basePath: string): Promise<TestService> {
  return startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`, { basePath });
}

/** Opens the request form of an operation, such as `post /plants`. */
async function tryOperation(page: Page, title: string, operation: string): Promise<Locator> {
  await page.getByRole('link', { name: title }).first().click();
  await page.getByRole('button', { name: `Test Request (${operation})` }).click();
  return page.getByRole('dialog');
}

async function schemeOf(page: Page): Promise<string | undefined> {
  const classes = await page.locator('body').getAttribute('class');
  return /\b(light|dark)-mode\b/.exec(classes ?? '')?.[1];
}

/** Sends the request of a form, waits for the status and the texts, and closes the form. */
async function send(form: Locator, ...shown: readonly string[]): Promise<void> {
  const answered = form.page().waitForResponse(/\/plants/);
  await form.getByRole('button', { name: 'Send' }).first().click();
  await answered;
  for (const text of shown) await form.getByText(text).last().waitFor();
  await form.getByRole('button', { name: 'Close Client' }).click();
  await form.waitFor({ state: 'hidden' });
}

test('/docs behind a proxy that removes a path prefix → requests keep the prefix', async (t) => {
  const service = await startOnFile(t, '/v1');
  const token = await service.token();
  const strangers: (string | undefined)[] = [];
  const url = await serve(t, (incoming, answer) => {
    if (incoming.url?.startsWith('/green/') !== true) {
      strangers.push(incoming.url);
      answer.writeHead(404).end();
      return;
    }
    const { method, headers } = incoming;
    const target = `${new URL(service.url).origin}${incoming.url.slice('/green'.length)}`;
    const outgoing = request(target, { method, headers }, (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(answer);
    });
    incoming.pipe(outgoing);
  });
  const { page, complaints } = await openPage(t);
  await page.goto(`${url}/green/v1/docs`);
  await page.getByPlaceholder('Token').fill(token);
  const list = await tryOperation(page, 'List plants', 'get /plants');
  await send(list, '200');
  assert.deepEqual(strangers, []);
  assert.deepEqual(complaints, []);
});

test('/docs: token entered once → a plant is created, listed and deleted', async (t) => {
  const service = await startOnFile(t, '/v1');
  const token = await service.token();
  const list = async (): Promise<string> =>
    (await fetch(`${service.url}/plants`, { headers: bearer(token) })).text();
  const { page, origins, complaints } = await openPage(t);
  await page.goto(`${service.url}/docs`);
  await page.getByPlaceholder('Token').fill(token);

  const creation = await tryOperation(page, 'Create a plant', 'post /plants');
  // An id that a double cannot represent.
  await creation
    .getByRole('textbox')
    .filter({ hasText: 'Black alder' })
    .fill('{"id": 9007199254740993, "name": "Fern"}');
  await send(creation, '200 OK', '"Fern"');
  assert.equal(await list(), '[{"name":"Fern"}]');

  await send(await tryOperation(page, 'List plants', 'get /plants'), '200 OK', '"Fern"');

  const deletion = await tryOperation(page, 'Delete a plant', 'delete /plants/{id}');
  await deletion.getByRole('combobox', { name: 'Value' }).filter({ hasText: /^7$/ }).fill('9007199254740993');
  await send(deletion, '204 No Content');
  assert.equal(await list(), '[]');

  assert.equal(await schemeOf(page), 'light');
  assert.deepEqual([...origins], [new URL(service.url).origin]);
  assert.deepEqual(complaints, []);
});

test('/docs: id that a double cannot represent → exact in the code snippet, and not rounded by the form', async (t) => {
  const service = await startOnFile(t, '');
  const { page, complaints } = await openPage(t);
  await page.goto(`${service.url}/docs`);
  await page.getByPlaceholder('Token').fill(await service.token());
  const form = await tryOperation(page, 'Create a plant', 'post /plants');
  const body = '{"id": 9007199254740993, "name": "Fern"}';
  await form.getByRole('textbox').filter({ hasText: 'Black alder' }).fill(body);
  await form.getByRole('button', { name: 'Code Snippet' }).click();
  await form
    .getByText(/--data '\{\s*"id": 9007199254740993,/)
    .first()
    .waitFor();

  await form.getByRole('button', { name: 'Form', exact: true }).click();
  await form.getByRole('combobox', { name: 'Body Value' }).filter({ hasText: 'Fern' }).fill('Elm');
  await form
    .getByText(/"name": "Elm"/)
    .first()
    .waitFor();
  const answered = page.waitForResponse(/\/plants/);
  const rejected = page.waitForEvent('console');
  await form.getByRole('button', { name: 'Send' }).first().click();
  // The form makes a text of the id, which the service rejects.
  const sent = (await answered).request().postData() ?? '';
  assert.match(sent, /"id": *"?9007199254740993\b/);
  assert.match(sent, /"Elm"/);
  assert.match((await rejected).text(), /status of 400/);
  assert.equal(complaints.length, 1, complaints.join());
});

test('/docs: id that a double cannot represent → exact in the code snippet of each client', async (t) => {
  const service = await startOnFile(t, '');
  const { page, complaints } = await openPage(t);
  await page.goto(`${service.url}/docs`);
  const form = await tryOperation(page, 'Create a plant', 'post /plants');
  await form
    .getByRole('textbox')
    .filter({ hasText: 'Black alder' })
    .fill('{"id": 9007199254740993, "name": "Fern"}');
  await form.getByRole('button', { name: 'Code Snippet' }).click();
  const client = form.getByTestId('client-picker');
  const code = form.locator('pre').filter({ hasText: '/plants' });
  const options = page.getByRole('option');
  await client.click();
  await options.first().waitFor();
  const clients = await options.count();
  const inexact: string[] = [];
  let snippet = await code.innerText();
  for (let index = 0; index < clients; index += 1) {
    const before = snippet;
    if (index > 0) await client.click();
    await options.nth(index).click();
    await until(async () => {
      snippet = await code.innerText();
      return snippet !== before;
    });
    const name = await client.innerText();
    if (!isExact(name, snippet)) inexact.push(`${name}\n${snippet}`);
  }
  assert.ok(clients > 40, `${clients} clients`);
  assert.deepEqual(inexact, []);
  assert.deepEqual(complaints, []);
});

/** True for a snippet with the id as a literal, or in a text if the language would round a literal. */
function isExact(client: string, snippet: string): boolean {
  const isRounded = /^(?:JavaScript|Node\.js|R) /.test(client);
  const exact = isRounded ? /["']\{.*\bid\\?": 9007199254740993,/ : /\bid\b\W+9007199254740993\b/;
  return exact.test(snippet);
}

test('/docs: browser prefers dark → dark page, also without a base path', async (t) => {
  const service = await startOnFile(t, '');
  const { page, origins, complaints } = await openPage(t);
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.goto(`${service.url}/docs`);
  for (const { summary } of operations) await page.getByRole('link', { name: summary }).first().waitFor();
  assert.equal(await schemeOf(page), 'dark');
  assert.deepEqual([...origins], [service.url]);
  assert.deepEqual(complaints, []);
});

test('/docs: every operation is on the page without scrolling, for a search in the page and for print', async (t) => {
  const service = await startOnFile(t, '');
  const { page } = await openPage(t);
  await page.setViewportSize({ width: 400, height: 300 });
  await page.goto(`${service.url}/docs`);
  for (const { description } of operations)
    await page.getByText(description.slice(0, 40)).first().waitFor({ state: 'attached' });
});

test('/docs → every button has an accessible name, also in the request form', async (t) => {
  const service = await startOnFile(t, '');
  const { page } = await openPage(t);
  await page.goto(`${service.url}/docs`);
  for (const { method, url } of operations) {
    const operation = `${method.toLowerCase()} ${url.replace(':id', '{id}')}`;
    await page.getByRole('button', { name: `Test Request (${operation})` }).waitFor();
  }
  await tryOperation(page, 'Create a plant', 'post /plants');
  const buttons = (await page.locator('body').ariaSnapshot()).match(/(?<=- )button.*/g) ?? [];
  assert.ok(buttons.length > 60, `${buttons.length} buttons`);
  assert.deepEqual(
    buttons.filter((button) => !/^button ".+"/.test(button)),
    [],
  );
});

for (const colorScheme of ['light', 'dark'] as const)
  test(`/docs, ${colorScheme} → the colors of texts have a contrast of 4.5 or more`, async (t) => {
    const service = await startOnFile(t, '');
    const { page } = await openPage(t);
    await page.emulateMedia({ colorScheme });
    await page.goto(`${service.url}/docs`);
    await page.getByRole('link', { name: 'Create a plant' }).first().waitFor();
    assert.equal(await schemeOf(page), colorScheme);
    const contrasts = await page.evaluate<Record<string, number>>(CONTRASTS);
    assert.equal(Object.keys(contrasts).length, 14);
    assert.deepEqual(
      Object.entries(contrasts).filter(([, contrast]) => !(contrast >= 4.5)),
      [],
    );
  });

test('the recorder of this test sees other hosts, errors and policy violations', async (t) => {
  const service = await startOnFile(t, '');
  const { page, origins, complaints } = await openPage(t);
  const inlineScript = page.waitForEvent('console', (message) =>
    message.text().endsWith('script-src-elem inline'),
  );
  const foreignFetch = page.waitForEvent('console', (message) =>
    message.text().includes('connect-src http://elsewhere'),
  );
  await page.goto(`${service.url}/docs`);
  await page.evaluate(`document.head.append(Object.assign(document.createElement('script'), { text: '1' }))`);
  await page.evaluate(`fetch('http://elsewhere.test/').catch(() => undefined)`);
  await Promise.all([inlineScript, foreignFetch]);
  assert.ok(complaints.length >= 2, complaints.join());
  await page.goto('about:blank');
  const asked = page.waitForRequest('http://elsewhere.test/');
  await page.evaluate(`fetch('http://elsewhere.test/').catch(() => undefined)`);
  await asked;
  assert.ok(origins.has('http://elsewhere.test'));
});

test('/docs: the script contains its licence and is loaded once', async (t) => {
  const service = await startOnFile(t, '');
  const first = await fetch(`${service.url}/docs/scalar.js`);
  assert.equal(first.status, 200);
  assert.match(await first.text(), /^\/\*!\nMIT License.*createApiReference/s);
  const etag = first.headers.get('etag') ?? '';
  const again = await fetch(`${service.url}/docs/scalar.js`, { headers: { 'if-none-match': etag } });
  assert.equal(again.status, 304);
  assert.equal(await again.text(), '');
  const statusWith = async (name: string, value: string): Promise<number> =>
    (await fetch(`${service.url}/docs/scalar.js`, { method: 'HEAD', headers: { [name]: value } })).status;
  // If-None-Match compares weakly, If-Match strongly (RFC 9110 §13.1).
  assert.equal(await statusWith('if-none-match', `"another", W/${etag}`), 304);
  assert.equal(await statusWith('if-match', `"another", ${etag}`), 200);
  assert.equal(await statusWith('if-match', `W/${etag}`), 412);
});

test('/docs: has the security headers for browsers; API responses do not', async (t) => {
  const service = await startOnFile(t, '');
  const page = await fetch(`${service.url}/docs`);
  const policy = page.headers.get('content-security-policy') ?? '';
  assert.match(policy, /(?:^|;)default-src 'none'(?:;|$)/);
  assert.match(policy, /(?:^|;)script-src 'self'(?:;|$)/);
  assert.match(policy, /(?:^|;)connect-src 'self'(?:;|$)/);
  assert.match(policy, /(?:^|;)frame-ancestors 'none'(?:;|$)/);
  assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  assert.equal(page.headers.get('strict-transport-security'), null);
  assert.doesNotMatch(await page.text(), /<script(?![^>]* src=)|\son\w+=|https?:\/\/(?!www\.w3\.org)/);
  const api = await fetch(`${service.url}/openapi.json`);
  assert.equal(api.headers.get('content-security-policy'), null);
});
