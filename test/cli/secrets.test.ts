import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { displayUrl } from '../../src/database-url.ts';
import { mintSecret } from '../../src/token.ts';
import { PASSWORD, urlsWithPassword } from '../support/data/urls-with-password.ts';
import { newInstallation, TOGETHER } from '../support/program.ts';

const TOKEN = mintSecret();

describe('a password in the database URL', TOGETHER, () => {
  for (const [name, url] of urlsWithPassword) {
    it(`failing command does not print it: ${name}`, async (t) => {
      const installation = await newInstallation(t);
      const env = { DATABASE_URL: url, LOG_LEVEL: 'trace' };
      const { code, stdout, stderr } = await installation.run(['token', 'list'], { env });
      assert.equal(code, 1);
      assert.notEqual(stderr, '');
      assert.ok(!(stdout + stderr).includes(PASSWORD), stdout + stderr);
    });
  }

  for (const [, url] of urlsWithPassword) {
    for (const args of [
      ['check', url],
      ['copy', url, url, 'more'],
      ['serve', '--port', url],
      ['export', 'alice', url],
      ['serve', `--database=${url.replace(/^\w+/, (scheme) => scheme.toUpperCase())}`],
    ]) {
      it(`rejected arguments do not print it: ${args.join(' ').replaceAll(PASSWORD, '***')}`, async (t) => {
        const installation = await newInstallation(t);
        const { code, stdout, stderr } = await installation.run(args);
        assert.equal(code, 1);
        assert.match(stderr, /^plant-store: /);
        assert.ok(!(stdout + stderr).includes(PASSWORD), stdout + stderr);
      });
    }
  }

  it('rejected arguments that only look like a database URL, or that hold a JWT, do not print it', async (t) => {
    const installation = await newInstallation(t);
    const jwt = `eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.${PASSWORD}`;
    for (const args of [
      ['check', `postgres://us/er:${PASSWORD}@h/d`],
      ['check', `postgres://u v:${PASSWORD}@h/d`],
      ['check', `postgres://h/d?password=a ${PASSWORD}`],
      ['check', `postgres://h/d?pass%77ord=${PASSWORD}`],
      ['check', `host=h password=${PASSWORD}`],
      ['check', '--database-url', `postgres://u:x@${PASSWORD}/y@127.0.0.1:1/d`],
      ['copy', `env:postgres://u:${PASSWORD}@h/d`, 'sqlite:x.db'],
      ['token', jwt],
      ['token', 'revoke', jwt, 'more'],
    ]) {
      const { code, stdout, stderr } = await installation.run(args);
      assert.equal(code, 1, args.join(' '));
      assert.ok(!(stdout + stderr).includes(PASSWORD), stdout + stderr);
    }
    const env = { DATABASE_URL_FILE: `postgres://us/er:${PASSWORD}@h/d` };
    const { stderr } = await installation.run(['check'], { env });
    assert.match(stderr, /DATABASE_URL_FILE must name a file, not be a URL/);
    assert.ok(!stderr.includes(PASSWORD), stderr);
  });

  it('the rule for database URLs keeps its example', async (t) => {
    const { code, stderr } = await (await newInstallation(t)).run(['check', '--database-url', '']);
    assert.equal(code, 1);
    assert.match(stderr, /postgres:\/\/USER:PASSWORD@HOST:PORT\/DATABASE/);
  });

  it('removed from a URL, in any position', () => {
    for (const [url, shown] of [
      [`postgres://u:${PASSWORD}@h/d`, 'postgres://u:***@h/d'],
      [`postgres://:${PASSWORD}@h/d`, 'postgres://:***@h/d'],
      [`postgres://u:a@${PASSWORD}@h,i:1/d`, 'postgres://u:***@h,i:1/d'],
      [`postgres://u:a/${PASSWORD}@h/d`, 'postgres://u:***@h/d'],
      [`postgres://h/d?user=u&password=${PASSWORD}&x=1`, 'postgres://h/d?user=u&password=***&x=1'],
      [`postgres://u@v:${PASSWORD}@h/d`, 'postgres://u@v:***@h/d'],
      [`postgres://u:1?a@${PASSWORD}@h/d`, 'postgres://u:***@h/d'],
      [`postgres://u:${PASSWORD}@h/d?options=a@b`, 'postgres://u:***@h/d?options=a@b'],
      [`postgres://h:1/d?user=u@v&password=${PASSWORD}`, 'postgres://h:1/d?user=u@v&password=***'],
      ['postgres://u@h:1/d?user=u@v', 'postgres://u@h:1/d?user=u@v'],
      [`postgres://h/d?PASSWORD=${PASSWORD}`, 'postgres://h/d?PASSWORD=***'],
      ['postgres://u@h/d', 'postgres://u@h/d'],
    ] as const)
      assert.equal(displayUrl(url), shown);
  });
});

for (const args of [
  ['token', 'revoke', TOKEN, 'more'],
  ['token', TOKEN],
  ['import', 'alice', TOKEN],
])
  it(`rejected arguments do not print a token: ${args.join(' ').replace(TOKEN, '***')}`, async (t) => {
    const installation = await newInstallation(t);
    const { code, stderr } = await installation.run(args);
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: .*plt_\*\*\*/);
    assert.ok(!stderr.includes(TOKEN), stderr);
  });
