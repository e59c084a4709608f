import assert from 'node:assert/strict';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { appendFile, chmod, copyFile, readFile, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { renderRequest } from '../../support/clients/raw-http.ts';
import { holdMigration } from '../../support/faults/hold-migration.ts';
import { holdWrites } from '../../support/faults/hold-writes.ts';
import { until } from '../../support/patience.ts';
import { endOf, type Installation, isOfTestSetup, newInstallation, TOGETHER } from '../../support/program.ts';
import { bearer } from '../../support/service.ts';

// openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj /CN=first.plants.test \
//   -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout first.key -out first.pem
// The others: -newkey rsa:2048, rsa:512; -days 1 in 2020; ec_paramgen_curve:secp256k1.
const CERTIFICATES = fileURLToPath(new URL('../../support/certificates/', import.meta.url));
type Name = 'first' | 'second' | 'rsa' | 'short' | 'expired';
const PRODUCTION = { NODE_ENV: 'production' };

describe('TLS on', TOGETHER, () => {
  it('HTTPS with TLS 1.2 and 1.3, nothing older, without warnings', async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const flags = await certificate(installation, 'first');
    const service = await installation.serve({ env: PRODUCTION, flags: [...flags, '--host', '0.0.0.0'] });
    assert.match(service.url, /^https:/);
    const { port } = new URL(service.url);
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const socket = await open(port, { minVersion: version, maxVersion: version });
      assert.equal(socket.getProtocol(), version);
      const list = { method: 'GET', path: '/plants', headers: Object.entries(bearer(token)) };
      assert.match(await exchange(socket, renderRequest(list)), /^HTTP\/1\.1 200 OK\r\n.*\r\n\[\]$/s);
    }
    await assert.rejects(
      open(port, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT:@SECLEVEL=0' }),
      /protocol version/i,
    );
    const broken = await exchange(await open(port), Buffer.from('GET /plants HTTP/1.1\r\nHost\r\n\r\n'));
    assert.match(broken, /^HTTP\/1\.1 400 .*\r\n\{"error":40004,/s);
    assert.ok(service.log.every((line) => Number(line.level) === 30 || isOfTestSetup(line)));
    assert.equal((await service.stop()).code, 0);
  });

  it('TLS 1.2 → only suites with forward secrecy and authenticated encryption, also after a renewal', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({
      env: PRODUCTION,
      flags: await certificate(installation, 'rsa'),
    });
    const { port } = new URL(service.url);
    for (const isRenewed of [false, true]) {
      for (const [ciphers, isTaken] of [
        ['AES128-SHA', false],
        ['AES256-GCM-SHA384', false],
        ['ECDHE-RSA-AES128-SHA', false],
        ['ECDHE-RSA-AES256-SHA384', false],
        ['ECDHE-RSA-AES128-GCM-SHA256', true],
        ['ECDHE-RSA-AES256-GCM-SHA384', true],
        ['ECDHE-RSA-CHACHA20-POLY1305', true],
      ] as const) {
        const opening = open(port, { maxVersion: 'TLSv1.2', ciphers });
        if (isTaken) (await opening).destroy();
        else await assert.rejects(opening, /handshake failure/i, ciphers);
      }
      if (isRenewed) break;
      service.kill('SIGHUP');
      await service.logged(({ msg }) => msg === 'the certificate was reloaded');
    }
  });

  it('key readable by every user → warning at start and at each renewal; by a group → none', async (t) => {
    const installation = await newInstallation(t);
    const flags = await certificate(installation, 'first');
    const key = join(installation.folder, 'tls.key');
    await chmod(key, 0o644);
    const service = await installation.serve({ env: PRODUCTION, flags });
    const exposed = () => service.log.filter(({ msg }) => String(msg).startsWith('every user can read'));
    assert.deepEqual(
      exposed().map(({ level, file, mode }) => [level, file, mode]),
      [[40, key, '644']],
    );
    for (const [mode, warnings] of [
      [0o604, 2],
      [0o640, 2],
      [0o600, 2],
    ] as const) {
      await chmod(key, mode);
      const renewed = () => service.log.filter(({ msg }) => msg === 'the certificate was reloaded').length;
      const before = renewed();
      service.kill('SIGHUP');
      await service.wrote(() => renewed() > before || undefined);
      assert.equal(exposed().length, warnings);
    }
  });

  it('certificate expired → a warning with its dates at the start and at each reload', async (t) => {
    const installation = await newInstallation(t);
    const flags = await certificate(installation, 'expired');
    const service = await installation.serve({ env: PRODUCTION, flags });
    const warnings = () =>
      service.log.filter(({ msg }) => /^a certificate in --tls-cert is not valid now/.test(String(msg)));
    service.kill('SIGHUP');
    await service.logged(({ msg }) => msg === 'the certificate was reloaded');
    assert.deepEqual(
      warnings().map(({ level, validFrom, validTo }) => [level, validFrom, validTo]),
      Array.from({ length: 2 }, () => [40, '2020-01-01T00:00:00.000Z', '2020-01-02T00:00:00.000Z']),
    );
    await assert.rejects(nameAt(new URL(service.url).port), { code: 'CERT_HAS_EXPIRED' });
    assert.equal((await service.stop()).code, 0);
  });

  it('intermediate certificate expired → the same, and the metric has its expiry', async (t) => {
    const installation = await newInstallation(t);
    const flags = await certificate(installation, 'second');
    const disabled = (await pem('first')).toString().replaceAll(/^/gm, '# ');
    await appendFile(join(installation.folder, 'tls.pem'), `${disabled}\n${await pem('expired')}`);
    const service = await installation.serve({ env: PRODUCTION, flags });
    const { subject, validTo } = await service.logged(({ msg }) =>
      String(msg).startsWith('a certificate in --tls-cert is not valid now'),
    );
    assert.deepEqual([subject, validTo], ['CN=expired.plants.test', '2020-01-02T00:00:00.000Z']);
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    assert.match(metrics, /^plant_store_tls_certificate_expiry_timestamp_seconds 1577923200$/m);
    assert.equal(await nameAt(new URL(service.url).port), 'second.plants.test');
  });

  it('SIGHUP → renewed certificate, connections stay open; mismatched files → the old certificate stays', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({
      env: PRODUCTION,
      flags: await certificate(installation, 'first'),
    });
    const { port } = new URL(service.url);
    const agent = new Agent({ keepAlive: true, maxSockets: 1, ca: await pem('first') });
    const before = await ask(`${service.url}/openapi.json`, agent);
    assert.equal(await nameAt(port), 'first.plants.test');

    await certificate(installation, 'second');
    service.kill('SIGHUP');
    const { validTo } = await service.logged(({ msg }) => msg === 'the certificate was reloaded');
    const { validToDate } = new X509Certificate(await pem('second'));
    assert.notEqual(validToDate.getTime(), new X509Certificate(await pem('first')).validToDate.getTime());
    assert.equal(validTo, validToDate.toISOString());
    const metrics = await (await fetch(`${service.adminUrl}/metrics`)).text();
    const expiry = `plant_store_tls_certificate_expiry_timestamp_seconds ${Date.parse(String(validTo)) / 1_000}`;
    assert.ok(metrics.split('\n').includes(expiry), metrics);
    assert.equal(await nameAt(port), 'second.plants.test');
    assert.equal(await ask(`${service.url}/openapi.json`, agent), before, 'not the same connection');

    await copyFile(join(CERTIFICATES, 'first.key'), join(installation.folder, 'tls.key'));
    service.kill('SIGHUP');
    const { level, err } = await service.logged(({ msg }) =>
      String(msg).startsWith('the certificate could not be reloaded'),
    );
    assert.equal(level, 50);
    assert.match(JSON.stringify(err), /must be a certificate and its key/);
    assert.equal(await nameAt(port), 'second.plants.test');
    agent.destroy();
    assert.equal((await service.stop()).code, 0);
  });

  it('SIGHUP during the start → renewed certificate after the start', async (t) => {
    const installation = await newInstallation(t);
    const migration = await holdMigration(t);
    const flags = await certificate(installation, 'first');
    const program = installation.start(['serve', '--port', '0', '--admin-port', '0', ...flags], {
      env: { ...PRODUCTION, DATABASE_URL: migration.databaseUrl },
    });
    await migration.waits();
    await certificate(installation, 'second');
    program.kill('SIGHUP');
    await migration.release();
    await program.logged(({ msg }) => msg === 'the certificate was reloaded');
    const { url } = await program.logged(({ msg }) => msg === 'serving');
    assert.equal(await nameAt(new URL(String(url)).port), 'second.plants.test');
  });

  it('client closes its connection at each response → each request is logged as answered', async (t) => {
    const installation = await newInstallation(t);
    const flags = await certificate(installation, 'first');
    const service = await installation.serve({ env: PRODUCTION, flags });
    const { port } = new URL(service.url);
    const requests = 20;
    for (let count = 0; count < requests; count += 1) {
      const socket = await open(port);
      socket.write('GET /plants HTTP/1.1\r\nHost: plants.test\r\n\r\n');
      await once(socket, 'data');
      socket.end();
    }
    assert.equal((await service.stop()).code, 0);
    const of = (text: string): number => service.log.filter(({ msg }) => msg === text).length;
    assert.deepEqual([of('answered'), of('client went away')], [requests, 0]);
  });

  it('closed TLS connections no longer count towards the limit', async (t) => {
    const installation = await newInstallation(t);
    const flags = [...(await certificate(installation, 'first')), '--max-connections', '1'];
    const { url, adminUrl } = await installation.serve({ env: PRODUCTION, flags });
    const { port } = new URL(url);
    const headers = Object.entries({
      ...bearer(await installation.token()),
      'content-type': 'application/json',
      connection: 'close',
    });
    const metric = async (name: string): Promise<number> => {
      const text = await (await fetch(`${adminUrl}/metrics`)).text();
      return Number(new RegExp(`^plant_store_${name} (\\S+)$`, 'm').exec(text)?.[1]);
    };
    let rejected = 0;
    for (let times = 0; times < 3; times += 1) {
      const socket = await openOnceFree(port);
      // With a request in flight it does not wait for its client.
      const held = await holdWrites(installation.databaseUrl);
      const body = `{"id":${times},"name":"Alder"}`;
      const answer = exchange(socket, renderRequest({ method: 'POST', path: '/plants', headers, body }));
      await until(async () => (await metric('writes_in_flight')) >= 1);
      await assert.rejects(open(port), /ECONNRESET|before secure TLS connection/);
      assert.equal(await metric('http_connections'), 1);
      // A scrape within 100 ms of the last one gets its text.
      await until(async () => (await metric('http_rejected_connections_total')) > rejected);
      rejected = await metric('http_rejected_connections_total');
      await held.release();
      assert.match(await answer, /^HTTP\/1\.1 200 /);
    }
  });
});

describe('TLS with invalid files', TOGETHER, () => {
  for (const { title, flags, says } of [
    {
      title: 'a certificate without a key',
      flags: ['--tls-cert', 'tls.pem'],
      says: /--tls-key \(TLS_KEY\) must be set too, since --tls-cert \(TLS_CERT\) is set/,
    },
    {
      title: 'a missing file',
      flags: ['--tls-cert', 'none.pem', '--tls-key', 'tls.key'],
      says: /--tls-cert \S*none\.pem cannot be read: ENOENT/,
    },
    {
      title: 'a key of another certificate',
      flags: ['--tls-cert', 'tls.pem', '--tls-key', 'other.key'],
      says: /tls\.pem and .*other\.key must be a certificate and its key: .*another certificate/,
    },
    {
      title: 'a key of another certificate and of another type',
      flags: ['--tls-cert', 'tls.pem', '--tls-key', 'rsa.key'],
      says: /tls\.pem and .*rsa\.key must be a certificate and its key: .*another certificate/,
    },
    {
      title: 'a key that is too short for OpenSSL',
      flags: ['--tls-cert', 'short.pem', '--tls-key', 'short.key'],
      says: /short\.pem and .*short\.key must be a certificate and its key: .*too small/,
    },
    {
      title: 'a file that is not a certificate',
      flags: ['--tls-cert', 'nothing.pem', '--tls-key', 'tls.key'],
      says: /nothing\.pem must be a certificate in PEM/,
    },
    {
      title: 'a certificate in DER',
      flags: ['--tls-cert', 'tls.der', '--tls-key', 'tls.key'],
      says: /tls\.der must be a certificate in PEM$/m,
    },
    {
      title: 'a key with a passphrase',
      flags: ['--tls-cert', 'tls.pem', '--tls-key', 'encrypted.key'],
      says: /encrypted\.key must have no passphrase; remove it with openssl pkey/,
    },
    {
      title: 'a key on a curve with which handshakes fail',
      flags: ['--tls-cert', 'curve.pem', '--tls-key', 'curve.key'],
      says: /curve\.key must be a key of another type, such as RSA, P-256 or Ed25519/,
    },
    {
      title: 'a file that is not a key',
      flags: ['--tls-cert', 'tls.pem', '--tls-key', 'nothing.pem'],
      says: /nothing\.pem must be a private key in PEM/,
    },
  ]) {
    it(`${title} → the service does not start`, async (t) => {
      const installation = await newInstallation(t);
      await certificate(installation, 'first');
      await copyFile(join(CERTIFICATES, 'second.key'), join(installation.folder, 'other.key'));
      for (const name of ['rsa.key', 'short.pem', 'short.key', 'curve.pem', 'curve.key'])
        await copyFile(join(CERTIFICATES, name), join(installation.folder, name));
      const [cert, key] = await Promise.all(
        ['tls.pem', 'tls.key'].map((name) => readFile(join(installation.folder, name))),
      );
      await writeFile(join(installation.folder, 'tls.der'), new X509Certificate(cert ?? '').raw);
      const encrypted = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'fern' } as const;
      await writeFile(
        join(installation.folder, 'encrypted.key'),
        createPrivateKey(key ?? '').export(encrypted),
      );
      await writeFile(join(installation.folder, 'nothing.pem'), 'nothing');
      const { code, stderr } = await endOf(installation.start(['serve', '--port', '0', ...flags]));
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /\n.*\n/);
    });
  }
});

it('--hsts → Strict-Transport-Security in every response; none by default', async (t) => {
  const installation = await newInstallation(t);
  for (const [flags, header] of [
    [[], null],
    [['--hsts', '31536000'], 'max-age=31536000'],
  ] as const) {
    const service = await installation.serve({ env: PRODUCTION, flags });
    for (const path of ['/plants', '/openapi.json', '/none']) {
      const { headers } = await fetch(service.url + path);
      assert.equal(headers.get('strict-transport-security'), header, path);
    }
    await service.stop();
  }
});

it('plain HTTP on a non-loopback address → warning', async (t) => {
  const installation = await newInstallation(t);
  const service = await installation.serve({ env: PRODUCTION, flags: ['--host', '0.0.0.0'] });
  const { level, host } = await service.logged(
    ({ msg }) => msg === 'plain HTTP on a non-loopback address; use TLS or a proxy with TLS',
  );
  assert.deepEqual([level, host], [40, '0.0.0.0']);
});

it('admin listener on a non-loopback address → warning', async (t) => {
  const installation = await newInstallation(t);
  const service = await installation.serve({ env: PRODUCTION, flags: ['--admin-host', '0.0.0.0'] });
  const { level, host } = await service.logged(({ msg }) =>
    String(msg).startsWith('the admin listener has no auth'),
  );
  assert.deepEqual([level, host], [40, '0.0.0.0']);
  assert.ok(
    !service.log.some(
      ({ msg }) => msg === 'plain HTTP on a non-loopback address; use TLS or a proxy with TLS',
    ),
  );
});

it('loopback in another form → no warning', async (t) => {
  const installation = await newInstallation(t);
  const flags = ['--host', '::ffff:127.0.0.1', '--admin-host', 'LOCALHOST'];
  const service = await installation.serve({ env: PRODUCTION, flags });
  assert.equal((await service.stop()).code, 0);
  const warned = service.log.filter(({ level, host }) => level === 40 && host !== undefined);
  assert.deepEqual(warned, []);
});

/** Copies a certificate and its key into the installation. Returns the flags for them. */
async function certificate({ folder }: Installation, name: Name): Promise<readonly string[]> {
  for (const kind of ['pem', 'key'])
    await copyFile(join(CERTIFICATES, `${name}.${kind}`), join(folder, `tls.${kind}`));
  await chmod(join(folder, 'tls.key'), 0o600);
  return ['--tls-cert', join(folder, 'tls.pem'), '--tls-key', join(folder, 'tls.key')];
}

function pem(name: Name): Promise<Buffer> {
  return readFile(join(CERTIFICATES, `${name}.pem`));
}

async function open(port: string, options: object = {}): Promise<TLSSocket> {
  const ca = await Promise.all([pem('first'), pem('second'), pem('rsa')]);
  const socket = connect({ host: '127.0.0.1', port: Number(port), ca, ...options });
  await once(socket, 'secureConnect');
  return socket;
}

/** Retries: the service may notice the end of the previous connection later than its client. */
async function openOnceFree(port: string, tries = 100): Promise<TLSSocket> {
  return open(port).catch((error: unknown) => {
    if (tries === 0) throw error;
    return openOnceFree(port, tries - 1);
  });
}

/** Returns the name in the certificate that a new connection gets. */
async function nameAt(port: string): Promise<string> {
  const socket = await open(port);
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return String(subject.CN);
}

/** Sends a request. Resolves to all bytes received until the service closes the connection. */
async function exchange(socket: TLSSocket, message: string | Buffer): Promise<string> {
  let text = '';
  socket.setEncoding('latin1').on('data', (data: string) => {
    text += data;
  });
  socket.write(message);
  await once(socket, 'close');
  return text;
}

/** Sends a request. Resolves to the local port of its connection. */
function ask(url: string, agent: Agent): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(url, { agent }, (response) => {
      const { localPort } = response.socket;
      response.resume().once('end', () => resolve(localPort));
    })
      .on('error', reject)
      .end();
  });
}
