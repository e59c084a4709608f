import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { HAPROXY, startHaproxy, stop } from '../../../deploy/try-haproxy.ts';
import { fillStore } from '../../long/long-list.ts';
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { newInstallation } from '../../support/program.ts';
import { freePort } from '../../support/servers/free-port.ts';

const CERTIFICATES = join(import.meta.dirname, '../../support/certificates');

const both = { ...needsProgram(HAPROXY), ...needsProgram('curl') };
test(
  'HAProxy with TLS: a list that breaks off → an error of a client that offers HTTP/2',
  both,
  async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    // Over 20 MB: much more than the buffers on the way.
    await fillStore(installation.databaseUrl, 'alice', 200_000, 100);
    const service = await installation.serve();
    const address = {
      port: Number(new URL(service.url).port),
      adminPort: Number(new URL(service.adminUrl).port),
    };

    const folder = await freshFolder();
    const tls = { port: await freePort(), file: join(folder, 'plants.pem') };
    const [certificate, key] = ['first.pem', 'first.key'].map((name) =>
      readFileSync(join(CERTIFICATES, name)),
    );
    writeFileSync(tls.file, `${certificate}${key}`);
    const proxy = await startHaproxy(folder, await freePort(), [address, address, address], { tls });
    t.after(() => stop(proxy));

    const list = `https://127.0.0.1:${tls.port}/plants`;
    const slowly = ['-sSk', '--http2', '--limit-rate', '2M', '-H', `Authorization: Bearer ${token}`, list];
    const curl = spawn('curl', slowly, { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(curl, 'exit');
    const [begin] = await once(curl.stdout, 'data');
    assert.match(String(begin), /^\[\{"name":/);
    service.kill('SIGKILL');
    curl.stdout.resume();
    const [code] = await ended;
    assert.notEqual(code, 0);
  },
);
