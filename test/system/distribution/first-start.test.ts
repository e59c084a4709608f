import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { engines, postgres, type TestEngine } from '../../support/engines.ts';
import { needs, needsProgram } from '../../support/needs.ts';
import { until } from '../../support/patience.ts';
import {
  type Installation,
  type LogLine,
  newInstallation,
  type Service,
  TOGETHER,
} from '../../support/program.ts';

const TOKENS = /plt_[0-9A-Za-z]{49}/g;
const PRODUCTION = { NODE_ENV: 'production' };
const hasIpv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === '::1'),
);

describe('the first start', TOGETHER, () => {
  for (const flags of [[], ['--base-path', '/v1'], ['--host', '0.0.0.0'], ['--host', '::1']]) {
    const wanted = { ...needsProgram('curl'), ...(flags.includes('::1') && needs('IPv6', hasIpv6)) };
    it(
      `prints one token and curl commands that work unchanged (${flags.join(' ') || 'defaults'})`,
      wanted,
      async (t) => {
        const installation = await newInstallation(t);
        const service = await installation.serve({ flags });
        const [create = '', list = '', remove = '', ...others] = await curlLines(service);
        assert.deepEqual(others, []);
        assert.equal(new Set(service.output.stdout.match(TOKENS)).size, 1);
        assert.match(service.output.stdout, /"msg":"serving".*This store is new/s);
        assert.equal(await runLine(create), '{"name":"Black alder","tag":"Alnus glutinosa"}');
        assert.equal(await runLine(list), '[{"name":"Black alder","tag":"Alnus glutinosa"}]');
        assert.equal(await runLine(remove), '');
        assert.equal(await runLine(list), '[]');
      },
    );
  }

  it('creates a token that `token list` shows; the second start creates none', async (t) => {
    const installation = await newInstallation(t);
    const first = await installation.serve();
    await curlLines(first);
    await first.stop();
    const { stdout: tokens } = await installation.run(['token', 'list']);
    assert.match(tokens, /default +valid +plants:read,plants:write .*created by the first start\n$/);
    await printsNoToken(installation, await installation.serve());
  });

  it('services that start together on a new store → exactly one prints a token', async (t) => {
    // With random ids, two rounds of five end with two tokens.
    for (let round = 0; round < 3; round += 1) {
      const installation = await newInstallation(t);
      assert.equal((await installation.run(['migrate'])).code, 0);
      const services = await Promise.all([1, 2, 3].map(() => installation.serve()));
      await until(() => services.some(({ output }) => output.stdout.includes('plt_')));
      const ends = await Promise.all(services.map((service) => service.stop()));
      assert.deepEqual(
        ends.map(({ code }) => code),
        [0, 0, 0],
      );
      assert.equal(new Set(ends.flatMap(({ stdout }) => stdout.match(TOKENS) ?? [])).size, 1);
      assert.equal((await listTokens(installation)).length, 1);
    }
  });

  it('store with plants and without tokens → no token, and a message how to create one', async (t) => {
    const installation = await newInstallation(t);
    const file = join(installation.folder, 'plants.ndjson');
    await writeFile(file, '{"id":1,"name":"Alder"}\n');
    assert.equal((await installation.run(['import', 'alice', file])).code, 0);
    const service = await installation.serve();
    await service.logged(isWithoutTokens);
    await printsNoToken(installation, service);
  });

  it('NODE_ENV is `production` with a slip → no token is printed', async (t) => {
    for (const value of ['prod', 'Production', '"production"', 'production\r']) {
      const installation = await newInstallation(t);
      const service = await installation.serve({ env: { NODE_ENV: value } });
      await service.logged(isWithoutTokens);
      await printsNoToken(installation, service);
    }
  });

  it('token cannot be printed → revoked', needs('Linux', process.platform === 'linux'), async (t) => {
    const installation = await newInstallation(t);
    const service = installation.start(['serve', '--port', '0', '--admin-port', '0'], {
      wrap: (program) => ['sh', '-c', 'exec "$@" > /dev/full', 'sh', ...program],
    });
    await until(() => /standard output cannot be written/.test(service.output.stderr));
    await until(async () => {
      const [token] = await listTokens(installation);
      return token !== undefined && token.revokedAt !== null;
    });
    service.kill('SIGTERM');
    assert.equal((await service.ended).code, 0);
  });

  it('token cannot be printed → the log has its creation and its revocation', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve({ wrap: withoutReader });
    await service.logged(({ msg }) => String(msg).startsWith('the first token could not be printed'));
    assert.equal((await service.stop()).code, 0);
    const [token] = await listTokens(installation);
    const audited = service.log.filter(({ audit }) => audit !== undefined);
    assert.deepEqual(
      audited.map(({ audit, token }) => [audit, token]),
      [
        ['tokenCreated', token?.id],
        ['tokenRevoked', token?.id],
      ],
    );
  });

  it('token can be neither printed nor revoked → the log says so, and the service goes on', async (t) => {
    const installation = await newInstallation(t);
    assert.equal((await installation.run(['migrate'])).code, 0);
    const db = new DatabaseSync(installation.file);
    db.exec(
      `CREATE TRIGGER no_revocation BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'no revocations'); END`,
    );
    db.close();
    const service = await installation.serve({ wrap: withoutReader });
    const { msg, token, reason, err } = await service.logged(({ level }) => Number(level) >= 50);
    assert.equal(
      msg,
      'the first token could be neither printed nor revoked; revoke it: plant-store token revoke ID',
    );
    assert.equal(reason, 'standard output cannot be written: the reader has gone');
    assert.match(JSON.stringify(err), /no revocations/);
    assert.deepEqual(
      (await listTokens(installation)).map(({ id, revokedAt }) => [id, revokedAt]),
      [[token, null]],
    );
    assert.equal((await service.stop()).code, 0);
  });

  for (const engine of engines) {
    it(`production → no token, and a message how to create one, on ${engine.name}`, async (t) => {
      await saysHowToMakeOne(t, engine, PRODUCTION);
    });
  }

  it('shared store → no token, with any NODE_ENV', async (t) => {
    await saysHowToMakeOne(t, postgres, {});
  });

  it('token exists → no message about tokens', async (t) => {
    const installation = await newInstallation(t);
    await installation.token();
    const service = await installation.serve({ env: PRODUCTION });
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    await service.stop();
    assert.ok(!service.log.some(isWithoutTokens));
    assert.ok(!service.output.stdout.includes('Server listening'), 'the start is logged once');
  });

  it('token exists, even revoked → no new token', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    const [{ id } = { id: '' }] = await listTokens(installation);
    await installation.run(['token', 'revoke', id]);
    await printsNoToken(installation, await installation.serve());
  });
});

/** Makes every write to standard output fail, except those of the log. */
function withoutReader([node = '', ...rest]: readonly string[]): readonly string[] {
  const program = `process.stdout.write = (_, done) => done(new Error('the reader has gone'));`;
  return [node, '--import', `data:text/javascript,${encodeURIComponent(program)}`, ...rest];
}

/** Waits for the curl commands that the service prints after its log. */
async function curlLines(service: Service): Promise<readonly string[]> {
  const printed = await service.wrote(() => {
    const lines = service.output.stdout.match(/^ +curl .*\n/gm) ?? [];
    return lines.length >= 3 ? lines : undefined;
  });
  return printed.map((line) => line.trim());
}

async function runLine(line: string): Promise<string> {
  return (await promisify(execFile)('bash', ['-c', line])).stdout;
}

function isWithoutTokens({ msg }: LogLine): boolean {
  return String(msg).startsWith('no valid token');
}

async function saysHowToMakeOne(
  t: TestContext,
  engine: TestEngine,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const installation = await newInstallation(t);
  const store = { ...env, DATABASE_URL: await engine.freshUrl(t) };
  const service = await installation.serve({ env: store });
  const { level } = await service.logged(isWithoutTokens);
  assert.equal(level, 40);
  const { stdout } = await service.stop();
  assert.doesNotMatch(stdout, /plt_|curl/);
  const listed = await installation.run(['token', 'list', '--json'], { env: store });
  assert.deepEqual(JSON.parse(listed.stdout), []);
}

/** Asserts that a start prints and creates no token. */
async function printsNoToken(installation: Installation, service: Service): Promise<void> {
  // The command takes much longer than the creation of a token after the start.
  const before = await listTokens(installation);
  const { code, stdout, stderr } = await service.stop();
  assert.equal(code, 0);
  assert.doesNotMatch(stdout + stderr, /plt_|curl/);
  assert.deepEqual(await listTokens(installation), before);
}

async function listTokens(
  installation: Installation,
): Promise<readonly { readonly id: string; readonly revokedAt: string | null }[]> {
  return JSON.parse((await installation.run(['token', 'list', '--json'])).stdout);
}
