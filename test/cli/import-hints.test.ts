import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { CHARACTERS_IN_BATCH, PLANTS_IN_BATCH } from '../../src/cli/commands/import-command.ts';
import { migrateStore } from '../../src/store/open-engine.ts';
import { execute, postgres, sqlite } from '../support/engines.ts';
import { newInstallation, TOGETHER } from '../support/program.ts';
import { startTcpProxy } from '../support/servers/tcp-proxy.ts';

/** Creates an installation with an empty store, and a function that imports a text. */
async function prepare(t: TestContext) {
  const installation = await newInstallation(t);
  const database = join(installation.folder, 'plants.db');
  await migrateStore(`sqlite:${database}`);

  async function importText(text: string, name = 'plants.ndjson', flags: readonly string[] = []) {
    const file = join(installation.folder, name);
    await writeFile(file, text);
    const env = { DATABASE_URL: `sqlite:${database}` };
    return installation.run(['import', 'alice', file, ...flags], { env });
  }

  return { importText };
}

describe('what to do after an import that did not finish', TOGETHER, () => {
  for (const [onConflict, again] of [
    ['fail', 'skip'],
    ['skip', 'skip'],
    ['replace', 'replace'],
  ] as const) {
    it(`invalid line, --on-conflict ${onConflict} → import again with ${again}`, async (t) => {
      const { importText } = await prepare(t);
      const text = '{"id":1,"name":"Alder"}\nbad\n';
      const { code, stderr } = await importText(text, 'plants.ndjson', ['--on-conflict', onConflict]);
      assert.equal(code, 1);
      assert.match(stderr, new RegExp(`1 invalid line skipped; .* with --on-conflict ${again}\n$`));
    });
  }
});

const rejections = [
  {
    engine: sqlite,
    trigger:
      "CREATE TRIGGER rejects BEFORE INSERT ON plants WHEN NEW.id = 2500 BEGIN SELECT RAISE(ABORT, 'not 2500'); END",
    reason: 'rejects it: not 2500 \\(SQLite code 1811\\)',
  },
  {
    engine: postgres,
    trigger: `CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql
        AS $$BEGIN IF NEW.id = 2500 THEN RAISE 'not 2500'; END IF; RETURN NEW; END$$;
     CREATE TRIGGER rejects BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION reject()`,
    reason: 'PostgreSQL: not 2500 \\(P0001\\)',
  },
];

for (const { engine, trigger, reason } of rejections)
  it(`${engine.name} rejects a plant → what was created, and how to continue`, async (t) => {
    const { run } = await newInstallation(t);
    const url = await engine.freshUrl(t);
    await migrateStore(url);
    await execute(url, trigger);
    const lines = Array.from({ length: 3_000 }, (_, id) => `{"id":${id},"name":"Alder"}\n`);
    const stdin = Readable.from([Buffer.from(lines.join(''))]);
    const { code, stderr } = await run(['import', 'alice'], { stdin, env: { DATABASE_URL: url } });
    assert.equal(code, 1);
    assert.match(
      stderr,
      new RegExp(`${reason}; 2000 plants created; import .* --on-conflict skip to finish\n$`),
    );
  });

it('PostgreSQL is unavailable before the COMMIT → nothing more may be created', async (t) => {
  const { run } = await newInstallation(t);
  const url = await postgres.freshUrl(t);
  await migrateStore(url);
  await execute(
    url,
    `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
        AS $$BEGIN RAISE 'too slow' USING ERRCODE = 'query_canceled'; END$$;
     CREATE TRIGGER fails BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION fail()`,
  );
  const stdin = Readable.from([Buffer.from('{"id":1,"name":"Alder"}\n')]);
  const { code, stderr } = await run(['import', 'alice', '--database-url', url], { stdin });
  assert.equal(code, 1);
  assert.match(stderr, /too slow \(57014\); 0 plants created; import .* to finish\n$/);
});

it('the response to a COMMIT is lost → how many plants it may have created', async (t) => {
  const { run } = await newInstallation(t);
  const url = new URL(await postgres.freshUrl(t));
  await migrateStore(url.href);
  // The migration commits too, before the plants are sent.
  let lost: Promise<void> | undefined;
  const proxy = await startTcpProxy(t, Number(url.port), (bytes) => {
    if (bytes.includes('Birch')) lost ??= proxy.expect(/COMMIT/, 'cut after');
  });
  url.host = `127.0.0.1:${proxy.port}`;
  const importTwo = (...flags: readonly string[]) =>
    run(['import', 'alice', '--database-url', url.href, ...flags], {
      stdin: Readable.from([Buffer.from('{"id":1,"name":"Alder"}\n{"id":2,"name":"Birch"}\n')]),
    });
  const { code, stderr } = await importTwo();
  await lost;
  assert.equal(code, 1);
  assert.match(stderr, /; 0 plants created, perhaps up to 2 more; import .* --on-conflict skip to finish\n$/);
  assert.equal((await importTwo('--on-conflict', 'skip')).stdout, '0 plants of alice created, 2 skipped\n');
});

describe('the input cannot be read to its end', TOGETHER, () => {
  it('file → its name, the reason, and how to continue', async (t) => {
    const { run } = await newInstallation(t);
    // The first page of memory has no content.
    const { code, stderr } = await run(['import', 'alice', '/proc/self/mem', '--format', 'ndjson']);
    assert.equal(code, 1);
    const reason =
      'cannot read /proc/self/mem: the disk reports an error; check it, and the log of the kernel';
    assert.ok(stderr.includes(`${reason}; 0 plants created; import the file again with `), stderr);
  });

  for (const [size, length, read, created] of [
    ['short', 10, PLANTS_IN_BATCH + 500, PLANTS_IN_BATCH],
    ['long', CHARACTERS_IN_BATCH / 4, 10, 8],
  ] as const)
    it(`standard input with ${size} plants → the number of plants that were created`, async (t) => {
      const { run } = await newInstallation(t);
      const name = 'x'.repeat(length);
      async function* lines(): AsyncGenerator<Buffer> {
        for (let id = 0; id < read; id += 1) yield Buffer.from(`{"id":${id},"name":"${name}"}\n`);
        throw new Error('connection lost');
      }
      const { code, stderr } = await run(['import', 'alice'], { stdin: Readable.from(lines()) });
      assert.equal(code, 1);
      assert.match(
        stderr,
        new RegExp(
          `cannot read standard input: connection lost; ${created} plants created; import .* --on-conflict skip to finish\n$`,
        ),
      );
      assert.equal((await run(['export', 'alice'])).stdout.trimEnd().split('\n').length, created);
    });
});

describe('many invalid lines', TOGETHER, () => {
  it('→ the first 20 are reported, and the number of all', async (t) => {
    const { importText } = await prepare(t);
    const { code, stderr } = await importText(`{"id":1,"name":"Alder"}\n${'bad\n'.repeat(1_000)}`);
    assert.equal(code, 1);
    const reports = stderr.trimEnd().split('\n');
    assert.equal(reports.length, 21);
    assert.match(reports[19] ?? '', /^line 21: /);
    assert.match(reports[20] ?? '', /1000 invalid lines skipped \(the first 20 are shown\)/);
    assert.doesNotMatch(stderr, /--format csv/);
  });

  it('no line is valid NDJSON → names the flag for CSV', async (t) => {
    const { importText } = await prepare(t);
    const { code, stderr } = await importText('id,name\n1,Alder\n');
    assert.equal(code, 1);
    assert.match(stderr, /2 invalid lines skipped; .*\. For CSV, add --format csv\n$/);
  });
});

it('variable with a typing error → one warning with the name of the setting', async (t) => {
  const installation = await newInstallation(t);
  await installation.token('alice');
  for (const args of [['token', 'list'], ['token', 'create', 'bob'], ['check'], ['export', 'alice']]) {
    // cspell:disable-next-line
    const { code, stderr } = await installation.run(args, { env: { BODYLIMIT: '1' } });
    assert.equal(code, 0, stderr);
    // cspell:disable-next-line
    const warnings = stderr.match(/BODYLIMIT is not a setting; did you mean BODY_LIMIT\?\n/g) ?? [];
    assert.equal(warnings.length, 1, `${args.join(' ')}: ${stderr}`);
  }
});

for (const [columns, bar] of [
  [50, /^\d+% \| [\d,]+ plants \| [\d,]+\/s \| \d+s left/m],
  [70, /^\[[=-]{10,25}\] +\d+% \| [\d,]+ plants \| [\d,]+\/s \| \d+s left/m],
] as const) {
  it(`terminal of ${columns} columns → the progress fits`, async (t) => {
    const installation = await newInstallation(t);
    const file = join(installation.folder, 'plants.ndjson');
    await writeFile(
      file,
      Array.from({ length: 100_000 }, (_, id) => `{"id":${id},"name":"plant"}\n`).join(''),
    );
    const terminal = { terminals: ['stderr'], columns } as const;
    const { code, stderr } = await installation.run(['import', 'alice', file], terminal);
    assert.equal(code, 0);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the bar is drawn by control sequences
    const drawn = stderr.split(/\r|\n|\u001b\[\d*[A-Za-z]/).filter((line) => line.includes('plants |'));
    assert.ok(drawn.length > 0);
    for (const line of drawn) {
      assert.match(line, bar);
      assert.ok(line.length <= columns, line);
    }
  });
}

it('invalid lines on a terminal → the cursor does not return to before them, and lines still wrap', async (t) => {
  const installation = await newInstallation(t);
  await writeFile(join(installation.folder, 'plants.ndjson'), 'no plant\n'.repeat(3));
  const { stderr } = await installation.run(['import', 'alice', 'plants.ndjson'], { terminals: ['stderr'] });
  // ESC 7 saves the position to which ESC 8 returns.
  const [saved, lastNote, restored] = ['\u001b7', 'line 3: ', '\u001b8'].map((text) =>
    stderr.lastIndexOf(text),
  );
  assert.ok(Number(lastNote) < Number(saved) && Number(saved) < Number(restored), JSON.stringify(stderr));
  assert.ok(!stderr.includes('\u001b[?7l'), 'line wrap stays on');
});

it('export to a terminal → no progress bar between the plants', async (t) => {
  const installation = await newInstallation(t);
  await writeFile(join(installation.folder, 'plants.ndjson'), '{"id":1,"name":"Fern"}\n');
  await installation.run(['import', 'alice', 'plants.ndjson']);
  const ended = await installation.run(['export', 'alice'], { terminals: ['stdout', 'stderr'] });
  assert.equal(ended.stderr, '1 plant of alice exported\n');
});
