import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openWire } from '../../support/clients/raw-connection.ts';
import { newInstallation } from '../../support/program.ts';

for (const isTls of [false, true])
  test(`NODE_OPTIONS=--insecure-http-parser → the parser stays strict, ${isTls ? 'with' : 'without'} TLS`, async (t) => {
    const installation = await newInstallation(t);
    const token = await installation.token();
    const [certificate, key] = ['first.pem', 'first.key'].map((name) =>
      fileURLToPath(new URL(`../../support/certificates/${name}`, import.meta.url)),
    );
    const tls = isTls ? ['--tls-cert', certificate ?? '', '--tls-key', key ?? ''] : [];
    const service = await installation.serve({
      flags: tls,
      env: { NODE_ENV: 'production', NODE_OPTIONS: '--insecure-http-parser' },
    });
    for (const headers of [
      'Transfer-Encoding : chunked',
      'Transfer-Encoding: chunked\r\nContent-Length: 5',
    ]) {
      const wire = openWire(service.url);
      t.after(() => wire.destroy());
      wire.send(
        `GET /plants HTTP/1.1\r\nHost: plants.test\r\nAuthorization: Bearer ${token}\r\n${headers}\r\n\r\n0\r\n\r\n`,
      );
      assert.equal((await wire.answer())?.status, 400, headers);
    }
    assert.equal((await service.stop()).code, 0);
  });
