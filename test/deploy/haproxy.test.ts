import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { open, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { HAPROXY, renderHaproxyConfig, startHaproxy, stop } from '../../deploy/try-haproxy.ts';
import { errorCodes, statusOf } from '../../src/api-errors.ts';
import { type Flags, loadConfig } from '../../src/config.ts';
import { mintSecret } from '../../src/token.ts';
import { mapOf, read, readYaml, run } from '../support/deploy-files.ts';
import { freshFolder } from '../support/engines.ts';
import { needsProgram } from '../support/needs.ts';
import { until } from '../support/patience.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startService, type TestService } from '../support/service.ts';

describe('haproxy.cfg', () => {
  const config = read('deploy/haproxy.cfg');
  const [compose] = readYaml('deploy/compose.yaml');
  const services = mapOf(compose?.services);

  test('lists the instances of the compose file, with their ports', () => {
    const { port, adminPort } = loadConfig({}, {});
    const servers = [...config.matchAll(/^\s*server (\S+) (\S+)$/gm)].map(([, name, address]) => [
      name,
      address,
    ]);
    const instances = Object.keys(services).filter((name) => name.startsWith('plant-store-'));
    assert.deepEqual(
      servers,
      instances.map((name) => [name, `${name}:${port}`]),
    );
    assert.match(config, new RegExp(`^\\s*default-server check port ${adminPort} `, 'm'));
  });

  test('health check → matches the response of a healthy admin listener', async (t) => {
    const [, method, path = ''] = /http-check send meth (\S+) uri (\S+)/.exec(config) ?? [];
    const status = /http-check expect status ([0-9]+)/.exec(config)?.[1];
    const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
    const answer = await fetch(service.adminUrl + path, { method: method ?? '' });
    await answer.body?.cancel();
    assert.equal(String(answer.status), status);
  });

  test('error responses of HAProxy → error codes of the service, with their status', () => {
    const turned = /set-status ([0-9]+) if \{ status ([0-9 ]+) \}/.exec(config);
    const answers = [
      ...config.matchAll(/^\s*http-error status ([0-9]+) content-type (\S+) string '([^']*)'/gm),
    ];
    assert.ok(answers.length >= 5);
    for (const [, status = '', contentType, body = ''] of answers) {
      const { error, message, ...rest } = JSON.parse(body);
      const code = errorCodes.find((known) => known === error);
      assert.ok(code !== undefined, `${error} is not an error code of the service`);
      const leaves = turned?.[2]?.split(' ').includes(status) ? turned[1] : status;
      assert.equal(leaves, String(statusOf(code)));
      assert.equal(contentType, 'application/json');
      assert.equal(typeof message, 'string');
      assert.deepEqual(rest, {});
    }
  });

  test('retries a sent request only if it is safe to repeat', () => {
    const conditions = config.match(/^\s*(?:acl|http-request disable-l7-retry|retry-on) .*$/gm);
    assert.deepEqual(
      conditions?.map((line) => line.trim()),
      [
        'retry-on conn-failure empty-response',
        'acl reads method GET HEAD',
        'acl creates method POST',
        'acl keyed req.hdr(Idempotency-Key) -m found',
        'http-request disable-l7-retry unless reads or creates keyed',
      ],
    );
  });

  test('sets X-Forwarded-For to the address of the client', () => {
    assert.match(config, /^\s*http-request set-header X-Forwarded-For %\[src\]$/m);
  });

  const haproxy = needsProgram(HAPROXY);
  test('X-Forwarded-For from a client → replaced by its address', haproxy, async (t) => {
    const { port } = await startBehindHaproxy(t, { trustProxy: '127.0.0.0/8', refusedTokenLimit: '1' });
    const statusFor = async (forwarded: string): Promise<number> => {
      const headers = { authorization: `Bearer ${mintSecret()}`, 'x-forwarded-for': forwarded };
      const answer = await fetch(`http://127.0.0.1:${port}/plants`, { headers });
      await answer.body?.cancel();
      return answer.status;
    };
    assert.deepEqual([await statusFor('192.0.2.1'), await statusFor('192.0.2.2')], [401, 429]);
  });

  test(
    'malformed or too large headers → HTML of HAProxy; what it forwards → error of the service',
    haproxy,
    async (t) => {
      const { port, service } = await startBehindHaproxy(t);
      const send = (header: string): Promise<Reply> =>
        exchangeBytes(port, `GET /plants HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${header}\r\n\r\n`);
      for (const header of ['bad header', `X-Long: ${'a'.repeat(40_000)}`]) {
        const { status, contentType } = await send(header);
        assert.match(String(status), /^(?:400|414|431)$/);
        assert.equal(contentType, 'text/html');
      }
      // HAProxy 3.2 closes the connection without a response.
      const { status, contentType } = await send('Content-Length: 1\r\nContent-Length: 2');
      assert.match(`${status} ${contentType}`, /^(?:400 text\/html|undefined undefined)$/);
      for (const header of [`X-Long: ${'a'.repeat(20_000)}`, 'X-Many: a\r\n'.repeat(250).trimEnd()]) {
        const { status, contentType } = await send(header);
        assert.deepEqual([status, contentType], [431, 'application/json']);
      }

      await service.close();
      const without = await send('X-Short: a');
      assert.deepEqual([without.status, without.contentType], [503, 'application/json']);
      assert.match(without.body, /^\{"error":50300,/);
    },
  );

  test('token in the query → not in the log of HAProxy', haproxy, async (t) => {
    const file = join(await freshFolder(), 'haproxy.log');
    await using log = await open(file, 'a');
    const { port } = await startBehindHaproxy(t, {}, log.fd);
    const secret = mintSecret();
    const answer = await fetch(`http://127.0.0.1:${port}/plants?access_token=${secret}`);
    await answer.body?.cancel();
    await until(() => readFileSync(file, 'utf8').includes('"GET /plants HTTP/1.1"'));
    assert.equal(readFileSync(file, 'utf8').includes('access_token'), false);
  });

  test('log of HAProxy → the id of each request, also if HAProxy itself responds', haproxy, async (t) => {
    const file = join(await freshFolder(), 'haproxy.log');
    await using log = await open(file, 'a');
    const { port, service } = await startBehindHaproxy(t, {}, log.fd);
    const ask = async (): Promise<string> => {
      const answer = await fetch(`http://127.0.0.1:${port}/plants/7`, { method: 'DELETE' });
      await answer.body?.cancel();
      return `${answer.status} ${answer.headers.get('x-request-id')}`;
    };
    const ofService = await ask();
    assert.match(ofService, /^401 [\w-]{8,}$/);
    await service.close();
    for (const [status, id = ''] of [ofService, await ask()].map((one) => one.split(' '))) {
      const line = new RegExp(` ${status} .* "DELETE /plants/7 HTTP/1\\.1" ${id}$`, 'm');
      await until(() => line.test(readFileSync(file, 'utf8')));
    }
  });

  test(
    'reload (soft stop) → an idle connection gets the response to its next request',
    haproxy,
    async (t) => {
      const { port, proxy } = await startBehindHaproxy(t);
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      t.after(() => agent.destroy());
      const load = async () => {
        const outgoing = request({ agent, host: '127.0.0.1', port, path: '/openapi.json' }).end();
        const [response] = await once(outgoing, 'response');
        response.resume();
        await once(response, 'end');
        return [outgoing.reusedSocket, response.statusCode, response.headers.connection];
      };
      assert.deepEqual(await load(), [false, 200, undefined]);
      proxy.kill('SIGUSR1');
      await until(() => rejectsConnections(port));
      assert.deepEqual(await load(), [true, 200, 'close']);
    },
  );

  const renderWithOtherAddresses = (): Promise<string> =>
    renderHaproxyConfig(1, [
      { port: 2, adminPort: 3 },
      { port: 4, adminPort: 5 },
      { port: 6, adminPort: 7 },
    ]);

  test('all sections are there, also with other addresses', async () => {
    const other = await renderWithOtherAddresses();
    assert.match(other, /server plant-store-3 127\.0\.0\.1:6 port 7$/m);
    for (const text of [config, other]) assertSections(text);
  });

  test(
    'HAProxy accepts it, unchanged, with other addresses and with the lines for traces',
    haproxy,
    async () => {
      // Skips DNS: the names do not exist here, and lookups may take a minute.
      const unresolved = config.replace('init-addr libc,none', 'init-addr none');
      assert.notEqual(unresolved, config);
      const forTraces = unresolved.replace(/# (http-request del-header trace)/g, '$1');
      assert.match(
        forTraces,
        /^ +http-request del-header traceparent\n +http-request del-header tracestate$/m,
      );
      for (const text of [unresolved, await renderWithOtherAddresses(), forTraces]) {
        const file = join(await freshFolder(), 'haproxy.cfg');
        await writeFile(file, text);
        await run(HAPROXY, ['-c', '-q', '-f', file]);
      }
    },
  );

  function assertSections(text: string): void {
    const headers = text.match(/^[a-z].*$/gm);
    assert.deepEqual(headers, [
      'global',
      'defaults',
      'resolvers system',
      'frontend api',
      'backend instances',
    ]);
    assert.equal(/^\s*default_backend (\S+)$/m.exec(text)?.[1], 'instances');
  }
});

/** Starts a service and HAProxy in front of it. `log` is the file descriptor for HAProxy's log. */
async function startBehindHaproxy(
  t: TestContext,
  settings: Flags = {},
  log: number | 'ignore' = 'ignore',
): Promise<{ readonly port: number; readonly service: TestService; readonly proxy: ChildProcess }> {
  const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`, settings);
  const port = await freePort();
  const address = {
    port: Number(new URL(service.url).port),
    adminPort: Number(new URL(service.adminUrl).port),
  };
  const proxy = await startHaproxy(await freshFolder(), port, [address, address, address], { log });
  t.after(() => stop(proxy));
  return { port, service, proxy };
}

/** Resolves to true if no connection is accepted. */
async function rejectsConnections(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return false;
  } catch {
    return true;
  } finally {
    socket.destroy();
  }
}

interface Reply {
  /** Undefined if the connection ended without a response. */
  readonly status: number | undefined;
  readonly contentType: string | undefined;
  readonly body: string;
}

/** Sends bytes on a new connection. Resolves to the response when the connection has ended. */
async function exchangeBytes(port: number, bytes: string): Promise<Reply> {
  const socket = connect(port, '127.0.0.1');
  socket.write(bytes);
  const response = await text(socket);
  const [, status] = /^HTTP\/1\.1 ([0-9]{3}) /.exec(response) ?? [];
  return {
    status: status === undefined ? undefined : Number(status),
    contentType: /^content-type: (.*)\r$/im.exec(response)?.[1],
    body: response.slice(response.indexOf('\r\n\r\n') + 4),
  };
}
