import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { execute } from '../support/engines.ts';
import { needs } from '../support/needs.ts';
import { assertFails, newInstallation, TOGETHER } from '../support/program.ts';

/** Clears a terminal, sets its title, and reverses the text direction. */
const HOSTILE = '\u001b[2J\u001b]0;title\u0007\u009b31m\u007f\u202etxt';
const ESCAPED = String.raw`\u001b[2J\u001b]0;title\u0007\u009b31m\u007f\u202etxt`;

describe('control characters in a message are escaped', TOGETHER, () => {
  for (const [title, args, expected] of [
    ['command', [HOSTILE], `unknown command '${ESCAPED}'`],
    ['flag', ['serve', `--${HOSTILE}`], `unknown option '--${ESCAPED}'`],
    ['argument', ['export', 'alice', `${HOSTILE}/x.csv`], `${ESCAPED} is not a folder`],
    ['owner', ['export', HOSTILE], ''],
    ['setting', ['serve', '--port', HOSTILE], '--port is '],
    ['database URL', ['check', '--database-url', `sqlite:${HOSTILE}.db`], `${ESCAPED}.db`],
    ['line break', ['export', 'alice', `${HOSTILE}\n/x.csv`], String.raw`${ESCAPED}\n/x.csv`],
  ] as const)
    it(title, async (t) => {
      const installation = await newInstallation(t);
      await writeFile(join(installation.folder, HOSTILE), '');
      assert.equal((await installation.run(['migrate'])).code, 0);
      const ended = await installation.run(args);
      assertFails(ended, /^plant-store: /);
      assertHarmless(ended.stderr);
      assert.ok(ended.stderr.includes(expected), ended.stderr);
    });

  it('path of a new store', async (t) => {
    const installation = await newInstallation(t);
    const { code, stderr } = await installation.run(['migrate', '--database-url', `sqlite:${HOSTILE}.db`]);
    assert.equal(code, 0);
    assert.equal(stderr, `created a new store at ${join(installation.folder, ESCAPED)}.db\n`);
  });

  it('JSON of check, on a terminal only', async (t) => {
    const installation = await newInstallation(t);
    assert.equal((await installation.run(['migrate'])).code, 0);
    await execute(
      installation.databaseUrl,
      `INSERT INTO plants (owner, id, name) VALUES ('${HOSTILE}', 1, 'a' || char(0))`,
    );
    const [shown, piped] = [
      await installation.run(['check', '--json'], { terminals: ['stdout'] }),
      await installation.run(['check', '--json']),
    ];
    assertHarmless(shown.stdout);
    assert.ok(piped.stdout.includes('\u202e'));
    assert.deepEqual(JSON.parse(shown.stdout), JSON.parse(piped.stdout));
  });

  it('damaged owner and name of a token, on a terminal', async (t) => {
    const installation = await newInstallation(t);
    await installation.token('alice');
    await execute(installation.databaseUrl, `UPDATE tokens SET owner = '${HOSTILE}', name = '${HOSTILE}'`);
    const onTerminal = { terminals: ['stdout'] } as const;
    const [shown, piped] = [
      await installation.run(['token', 'list', '--json'], onTerminal),
      await installation.run(['token', 'list', '--json']),
    ];
    assertHarmless(shown.stdout);
    assert.deepEqual(JSON.parse(shown.stdout), JSON.parse(piped.stdout));
    const [{ id }] = JSON.parse(shown.stdout);
    for (const before of ['', ' was already']) {
      const { stdout } = await installation.run(['token', 'revoke', id], onTerminal);
      assertHarmless(stdout);
      assert.ok(stdout.includes(`${id} of ${ESCAPED}${before}`), stdout);
    }
  });

  it('existing file', async (t) => {
    const installation = await newInstallation(t);
    await writeFile(join(installation.folder, HOSTILE), '');
    assert.equal((await installation.run(['migrate'])).code, 0);
    const ended = await installation.run(['export', 'alice', '--format', 'csv', HOSTILE]);
    assertFails(ended, /the file .* already exists/);
    assert.ok(ended.stderr.includes(ESCAPED), ended.stderr);
    assertHarmless(ended.stderr);
  });

  for (const [format, text, says] of [
    ['ndjson', `${HOSTILE}\n{"id":1,"name":"Fern"}\n`, /line 1: .* at character 1\n/],
    ['csv', `id,name\n1,"a"${HOSTILE}\n2,Fern\n`, /line 2: the line is not CSV/],
  ] as const)
    for (const terminals of [[], ['stderr']] as const)
      it(`${format} file${terminals.length > 0 ? ', on a terminal' : ''}: ${JSON.stringify(text)}`, async (t) => {
        const installation = await newInstallation(t);
        await writeFile(join(installation.folder, 'plants'), text);
        const ended = await installation.run(['import', 'alice', '--format', format, 'plants'], {
          terminals,
        });
        assert.equal(ended.code, 1);
        assert.match(ended.stderr, says);
        // The progress bar moves the cursor.
        if (terminals.length === 0) assertHarmless(ended.stderr);
        for (const part of ['\u001b]0;', '\u0007', '\u009b31m', '\u202e'])
          assert.ok(!ended.stderr.includes(part), ended.stderr);
      });
});

describe('a path that cannot be a store or a backup', TOGETHER, () => {
  const long = 'n'.repeat(300);
  for (const [args, message] of [
    [
      ['migrate', '--database-url', 'sqlite:x.db/'],
      /cannot open the store \/.*\/x\.db\/: it is a folder; name a file in it/,
    ],
    [['migrate', '--database-url', `sqlite:${long}`], /cannot open the store \/.*\/n+: its name is too long/],
    [
      ['migrate', '--database-url', 'sqlite:/proc/x.db'],
      /cannot open the store \/proc\/x\.db: no file can be created in this folder/,
    ],
    [['check', '--database-url', 'sqlite:/proc'], /\/proc is a folder; name a file in it/],
    [['backup', 'x.bak', '--database-url', 'sqlite:/proc'], /\/proc is a folder; name a file in it/],
    [['copy', 'sqlite:/proc', 'sqlite:x.db'], /\/proc is a folder; name a file in it/],
    [
      ['migrate', '--database-url', 'sqlite:/dev/null/x.db'],
      /cannot open the store \/dev\/null\/x\.db: \/dev\/null is not a folder/,
    ],
    [
      ['import', 'alice', '/dev/null/', '--format', 'csv'],
      /cannot read \/dev\/null\/: \/dev\/null is not a folder/,
    ],
    [['openapi', '--server', 'https://plants.example', '--base-path', 'v1'], /--base-path is "v1"/],
    [['backup', 'x.bak/'], /cannot create \/.*\/x\.bak\/: it is a folder; name a file in it/],
    [['backup', long], /cannot create \/.*\/n+: its name or path is too long/],
    [['backup', '/proc/x.bak'], /cannot create \/proc\/x\.bak: no file can be created in this folder/],
    [['import', 'alice', '--format', 'csv', long], /cannot read \/.*\/n+: its name or path is too long/],
  ] as const)
    it(`${args[0]} ${args.at(-1)?.slice(0, 30)}`, needs('Linux', process.platform === 'linux'), async (t) => {
      const installation = await newInstallation(t);
      if (args[0] !== 'migrate') assert.equal((await installation.run(['migrate'])).code, 0);
      const ended = await installation.run(args);
      assertFails(ended, message);
      // The folder has a random name, which can look like an error code.
      assert.doesNotMatch(ended.stderr.replaceAll(installation.folder, ''), /E[A-Z]{4,}/);
    });
});

function assertHarmless(text: string): void {
  assert.doesNotMatch(text.replaceAll('\n', ''), /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u);
}
