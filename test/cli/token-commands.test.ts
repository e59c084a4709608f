import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { migrateStore, openBulk } from '../../src/store/open-engine.ts';
import { mintSecret, newToken, scopes, type Token } from '../../src/token.ts';
import { secretPart } from '../support/data/secret-part.ts';
import { connections, execute, postgres } from '../support/engines.ts';
import { assertFails, type Installation, newInstallation, TOGETHER } from '../support/program.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';
import { bearer, startService } from '../support/service.ts';

describe('token create', TOGETHER, () => {
  it('prints only the token; a service on the same store accepts it', async (t) => {
    const installation = await newInstallation(t);
    const service = await startService(t, installation.databaseUrl);
    const { code, stdout } = await installation.run(['token', 'create', 'alice']);
    assert.equal(code, 0);
    assert.match(stdout, /^plt_[0-9A-Za-z]{49}\n$/);
    const response = await fetch(`${service.url}/plants`, { headers: bearer(stdout.trim()) });
    assert.equal(response.status, 200);
    assert.equal(await response.text(), '[]');
  });

  it('on a terminal → also describes the token', async (t) => {
    const installation = await newInstallation(t);
    await installation.run(['migrate']);
    const { stdout, stderr } = await installation.run(['token', 'create', 'alice'], {
      terminals: ['stderr'],
    });
    assert.match(stdout, /^plt_[0-9A-Za-z]{49}\n$/);
    const [{ id, expiresAt } = {}] = await listTokens(installation);
    assert.equal(
      stderr,
      `a token of alice (id ${id}, expires at ${expiresAt}); the token is shown only once:\n`,
    );
    const revoked = await installation.run(['token', 'revoke', String(id)], { terminals: ['stderr'] });
    assert.deepEqual([revoked.stdout, revoked.stderr], [`revoked ${id} of alice\n`, '']);
  });

  it('a token as OWNER → fails without printing or storing it; so do import and export', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice');
    for (const args of [
      ['token', 'create', secret],
      ['import', secret, '-'],
      ['export', secret],
    ]) {
      const { code, stdout, stderr } = await installation.run(args);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, /OWNER is a token, not a name; `plant-store token revoke` takes a token/);
      assert.ok(!stderr.includes(secretPart(secret)));
    }
    assert.deepEqual(
      (await listTokens(installation)).map(({ owner }) => owner),
      ['alice'],
    );
  });

  it('new store → message with its absolute path; existing store → no message', async (t) => {
    const installation = await newInstallation(t);
    const args = ['token', 'create', 'alice', '--database-url', 'sqlite:data/plants.db'];
    const first = await installation.run(args);
    assert.match(
      first.stderr,
      new RegExp(
        `^created a new store at ${RegExp.escape(join(installation.folder, 'data', 'plants.db'))}\n`,
      ),
    );
    assert.equal(first.code, 0);
    assert.doesNotMatch((await installation.run(args)).stderr, /created a new store/);
  });

  it('--scope, --expires and --name → stored with the token', async (t) => {
    const installation = await newInstallation(t);
    const service = await startService(t, installation.databaseUrl);
    const before = Date.now();
    const flags = ['--scope', 'plants:read', '--expires', '12h', '--name', 'the greenhouse'];
    const headers = bearer(await installation.token('alice', ...flags));
    const body = '{"id":1,"name":"Alder"}';
    const create = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body };
    assert.equal((await fetch(`${service.url}/plants`, { headers })).status, 200);
    assert.equal((await fetch(`${service.url}/plants`, create)).status, 403);

    const [token] = await listTokens(installation);
    assert.deepEqual(token?.scopes, ['plants:read']);
    assert.equal(token?.name, 'the greenhouse');
    const life = Date.parse(String(token?.expiresAt)) - before;
    assert.ok(life >= 12 * 3_600_000 && life < 12 * 3_600_000 + 60_000, `expires after ${life} ms`);
  });

  it('default → both scopes and 90 days; --expires never → no expiry', async (t) => {
    const installation = await newInstallation(t);
    const before = Date.now();
    await installation.token('alice');
    await installation.token('bob', '--expires', 'never');
    const [first, second] = await listTokens(installation);
    assert.deepEqual([first?.owner, second?.owner], ['alice', 'bob']);
    assert.deepEqual(first?.scopes, ['plants:read', 'plants:write']);
    const life = Date.parse(String(first?.expiresAt)) - before;
    assert.ok(life >= 90 * 86_400_000 && life < 90 * 86_400_000 + 60_000, `expires after ${life} ms`);
    assert.equal(second?.expiresAt, null);
  });

  it('--scope several times → all scopes', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice', '--scope', 'plants:read,plants:write', '--scope', 'plants:read');
    await installation.token('alice', '--scope', 'plants:write', '--scope', 'plants:read');
    for (const token of await listTokens(installation))
      assert.deepEqual(token.scopes, ['plants:read', 'plants:write']);
    const args = ['token', 'create', 'alice', '--scope', 'plants:eat', '--scope', 'plants:read'];
    assertFails(await installation.run(args), /--scope/);
  });

  it('lost response of the store → audited; the message names the token, which `token revoke` accepts', async (t) => {
    const installation = await newInstallation(t);
    const { direct, proxied, proxy } = await withProxy(t);
    await installation.run(['migrate', ...direct]);
    const lost = proxy.expect(/INSERT INTO tokens/, 'cut after');
    const { code, stdout, stderr } = await installation.run(['token', 'create', 'alice', ...proxied]);
    await lost;
    assert.deepEqual([code, stdout], [1, '']);
    const [event, message] = stderr.trimEnd().split('\n');
    const { audit, token, owner, msg } = JSON.parse(event ?? '');
    assert.deepEqual([audit, owner, msg], ['tokenCreated', 'alice', 'a token may have been created']);
    assert.match(message ?? '', new RegExp(`the token ${token} of alice may exist; .*token revoke ${token}`));
    const revoked = await installation.run(['token', 'revoke', token, ...direct]);
    assert.deepEqual([revoked.code, revoked.stdout], [0, `revoked ${token} of alice\n`]);
  });

  it('token not printed, lost response to its revocation → audited, and the message names the token', async (t) => {
    if (process.platform !== 'linux') return t.skip('only Linux has /dev/full');
    const installation = await newInstallation(t);
    const { direct, proxied, proxy } = await withProxy(t);
    await installation.run(['migrate', ...direct]);
    const lost = proxy.expect(/UPDATE tokens/, 'cut after');
    const { code, stderr } = await installation.runProcess(['token', 'create', 'alice', ...proxied], {
      wrap: (program) => ['sh', '-c', 'exec "$@" > /dev/full', 'sh', ...program],
    });
    await lost;
    assert.equal(code, 1);
    const lines = stderr.trimEnd().split('\n');
    const events = lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
    assert.deepEqual(
      events.map(({ msg }) => msg),
      ['a token was created', 'a token may have been revoked'],
    );
    const [{ token }] = events;
    assert.match(
      lines.at(-1) ?? '',
      new RegExp(`neither printed nor revoked \\(.+\\); revoke it: plant-store token revoke ${token}$`),
    );
  });

  it('the store has stored nothing → no audit line', async (t) => {
    const installation = await newInstallation(t);
    const url = await postgres.freshUrl(t);
    await installation.run(['migrate', '--database-url', url]);
    await execute(
      url,
      `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN RAISE EXCEPTION 'a lock' USING ERRCODE = 'lock_not_available'; END$$;
       CREATE TRIGGER fail BEFORE INSERT ON tokens EXECUTE FUNCTION fail()`,
    );
    const failed = await installation.run(['token', 'create', 'alice', '--database-url', url]);
    assertFails(failed, /^plant-store: .*a lock/);
    assert.doesNotMatch(failed.stderr, /audit|may exist/);
  });

  it('for an owner of an identity provider → a token for the same plants', async (t) => {
    const { run, databaseUrl, folder } = await newInstallation(t);
    const owner = 'https://id.example/realms/plants#7d1f';
    const file = join(folder, 'plants.ndjson');
    await writeFile(file, '{"id":1,"name":"Fern"}');
    assert.equal((await run(['import', owner, file])).code, 0);
    const { stdout } = await run(['token', 'create', owner]);
    const service = await startService(t, databaseUrl);
    const headers = bearer(stdout.trim());
    assert.deepEqual(await (await fetch(`${service.url}/plants`, { headers })).json(), [{ name: 'Fern' }]);
    assert.equal((await run(['check'])).stdout, 'sound: 1 plant, 1 token, 0 idempotency keys\n');
  });

  for (const { args, names } of [
    { args: ['two words'], names: /OWNER/ },
    { args: ['https://id.example'], names: /OWNER must be .* or ISSUER#SUBJECT/ },
    { args: ['Zoë'], names: /OWNER must be .* ASCII letters/ },
    { args: ['alice', '--scope', 'plants:read,plants:eat'], names: /--scope/ },
    { args: ['alice', '--expires', 'tomorrow'], names: /--expires.*90d/ },
    { args: ['alice', '--expires', '1000000d'], names: /--expires.*999999/ },
    { args: ['alice', '--name', '\u001b[31mred'], names: /--name/ },
    { args: ['alice', '--database-url', 'mysql://somewhere'], names: /--database-url/ },
  ]) {
    it(`${JSON.stringify(args).slice(0, 60)} → rejected, and no token is created`, async (t) => {
      const installation = await newInstallation(t);
      assertFails(await installation.run(['token', 'create', ...args]), names);
      assert.equal(existsSync(installation.file), false);
    });
  }
});

describe('token list', TOGETHER, () => {
  it('prints a table without secrets', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice', '--name', 'the greenhouse', '--expires', 'never');
    const { code, stdout, stderr } = await installation.run(['token', 'list']);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    const [head = '', row = '', ...rest] = stdout.split('\n');
    assert.match(head, /^ID +OWNER +STATE +SCOPES +EXPIRES +LAST USED +NAME$/);
    assert.match(row, /^\w+ +alice +valid +plants:read,plants:write +never +never +the greenhouse$/);
    assert.equal(head.indexOf('NAME'), row.indexOf('the greenhouse'));
    assert.deepEqual(rest, ['']);
    assert.ok(!stdout.includes(secretPart(secret)));
  });

  it('--json → array with the last use of each token', async (t) => {
    const installation = await newInstallation(t);
    const service = await startService(t, installation.databaseUrl);
    assert.deepEqual(await listTokens(installation), []);
    const secret = await installation.token('alice');
    const [unused, ...others] = await listTokens(installation);
    assert.deepEqual(others, []);
    assert.deepEqual(Object.keys(unused ?? {}).sort(), [
      ...['createdAt', 'expiresAt', 'id', 'lastUsedAt', 'name', 'owner', 'revokedAt', 'scopes', 'state'],
    ]);
    assert.equal(unused?.lastUsedAt, null);
    await fetch(`${service.url}/plants`, { headers: bearer(secret) });
    await service.close();
    const [used] = await listTokens(installation);
    assert.ok(Math.abs(Date.now() - Date.parse(String(used?.lastUsedAt))) < 60_000, JSON.stringify(used));
    assert.ok(!JSON.stringify(used).includes(secretPart(secret)));
  });
});

describe('token list of texts that another program wrote', TOGETHER, () => {
  it('on one line per token, without control characters', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    await execute(
      installation.databaseUrl,
      "UPDATE tokens SET owner = 'o' || char(27) || '[2J', name = 'n' || char(10) || char(8238)",
    );
    const { code, stdout } = await installation.run(['token', 'list']);
    assert.equal(code, 0);
    assert.match(stdout, /^ID [^\n]+\n\w+ +o\\u001b\[2J +valid [^\n]+ n\\n\\u202e\n$/);
  });
});

describe('token list of many tokens', TOGETHER, () => {
  it('several pages → one array, or one table with aligned columns', async (t) => {
    const installation = await newInstallation(t);
    const tokens = await fillWithTokens(installation.databaseUrl, 2_500);
    const json = await installation.run(['token', 'list', '--json']);
    const listed: unknown = JSON.parse(json.stdout);
    assert.equal(json.stdout, `${JSON.stringify(listed, null, 2)}\n`);
    assert.ok(Array.isArray(listed));
    assert.deepEqual(
      listed.map(({ id, owner, name }) => [id, owner, name]),
      tokens.map(({ id, owner, name }) => [id, owner, name]),
    );
    const { stdout } = await installation.run(['token', 'list']);
    const [head = '', ...lines] = stdout.trimEnd().split('\n');
    const column = head.indexOf('NAME');
    assert.deepEqual(
      lines.map((line) => line.slice(column)),
      tokens.map(({ name }) => name),
    );
    assert.equal(Math.max(...lines.map((line) => line.indexOf('  valid'))), head.indexOf('  STATE'));
  });

  it('no tokens → empty array', async (t) => {
    const installation = await newInstallation(t);
    await installation.run(['migrate']);
    assert.equal((await installation.run(['token', 'list', '--json'])).stdout, '[]\n');
  });
});

/** Fills a new store with tokens whose owners and names have various lengths. Returns them, oldest first. */
async function fillWithTokens(url: string, count: number): Promise<readonly Token[]> {
  const tokens = Array.from({ length: count }, (_, index) => {
    const fields = { scopes, expiresAt: null, name: `token ${index}` };
    return newToken(mintSecret(), `o${'w'.repeat(index % 100)}ner`, fields, index);
  });
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  await bulk.fill(({ addTokens }) => addTokens(tokens));
  await bulk.close();
  return tokens;
}

describe('token revoke', TOGETHER, () => {
  it('accepts the token itself and never prints it', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice');
    const other = await installation.token('bob');
    const mistyped = `${other.slice(0, -1)}${other.endsWith('0') ? '1' : '0'}`;
    for (const named of [mistyped, other.slice(1), mintSecret()]) {
      const rejected = await installation.run(['token', 'revoke', named]);
      const message = `plant-store: there is no such token in the store at ${installation.file}; `;
      assertFails(rejected, new RegExp(`^${RegExp.escape(message)}.*token list`));
      assert.ok(!rejected.stderr.includes(secretPart(named)), rejected.stderr);
    }
    const { code, stdout, stderr } = await installation.run(['token', 'revoke', secret]);
    const [{ id, state } = {}, second] = await listTokens(installation);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: `revoked ${id} of alice\n` });
    assert.ok(!stderr.includes(secretPart(secret)), stderr);
    assert.deepEqual([state, second?.state], ['revoked', 'valid']);
  });

  it('token already revoked → prints the time, without a second audit event', async (t) => {
    const installation = await newInstallation(t);
    const secret = await installation.token('alice');
    await installation.run(['token', 'revoke', secret]);
    const [{ id, revokedAt } = {}] = await listTokens(installation);
    const again = await installation.run(['token', 'revoke', String(id)]);
    assert.deepEqual(again, {
      code: 0,
      signal: null,
      stdout: `${id} of alice was already revoked at ${revokedAt}\n`,
      stderr: '',
    });
    assert.equal((await listTokens(installation))[0]?.revokedAt, revokedAt);
  });

  it('lost response of the store → audited; the message asks to run the command again', async (t) => {
    const installation = await newInstallation(t);
    const { direct, proxied, proxy } = await withProxy(t);
    await installation.run(['token', 'create', 'alice', ...direct]);
    const list = await installation.run(['token', 'list', '--json', ...direct]);
    const [{ id }] = JSON.parse(list.stdout);
    const lost = proxy.expect(/UPDATE tokens/, 'cut after');
    const { code, stdout, stderr } = await installation.run(['token', 'revoke', id, ...proxied]);
    await lost;
    assert.deepEqual([code, stdout], [1, '']);
    const [event, message] = stderr.trimEnd().split('\n');
    const { audit, token, msg } = JSON.parse(event ?? '');
    assert.deepEqual([audit, token, msg], ['tokenRevoked', id, 'a token may have been revoked']);
    assert.match(message ?? '', new RegExp(`the token ${id} may be revoked; run the command again`));
    const again = await installation.run(['token', 'revoke', id, ...proxied]);
    assert.match(again.stdout, /was already revoked at/);
  });

  it('unknown id → names the command that lists ids', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    assertFails(await installation.run(['token', 'revoke', 'nosuchtoken1']), /nosuchtoken1.*token list/);
  });

  it('missing store → none is created', async (t) => {
    const installation = await newInstallation(t);
    assertFails(await installation.run(['token', 'revoke', 'nosuchtoken1']), /./);
    assert.equal(existsSync(installation.file), false);
  });
});

/** Creates a database. Returns flags that name it, directly and behind a proxy. */
async function withProxy(t: TestContext) {
  const url = new URL(await postgres.freshUrl(t));
  const direct = ['--database-url', url.href];
  const proxy = await startTcpProxy(t, Number(url.port));
  url.host = `127.0.0.1:${proxy.port}`;
  return { direct, proxied: ['--database-url', url.href], proxy };
}

type ListedToken = Readonly<Record<string, unknown>>;

async function listTokens(installation: Installation): Promise<readonly ListedToken[]> {
  const { code, stdout, stderr } = await installation.run(['token', 'list', '--json']);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}
