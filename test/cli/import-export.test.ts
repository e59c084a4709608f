import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { readFile, readlink, rename, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { displayUrl } from '../../src/database-url.ts';
import { MAX_CELLS } from '../../src/formats/csv.ts';
import { migrateStore } from '../../src/store/open-engine.ts';
import { engines, execute, postgres, rowsOf, sqlite, type TestEngine } from '../support/engines.ts';
import { until } from '../support/patience.ts';
import { assertFails, type Installation, newInstallation, TOGETHER } from '../support/program.ts';
import type { CommandOptions, Ended } from '../support/run-command.ts';
import { bearer, startService } from '../support/service.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));

/** Creates an installation and an empty store of an engine, so that no command reports a new store. */
async function prepare(t: TestContext, engine: TestEngine = sqlite) {
  const installation = await newInstallation(t);
  const url = await engine.freshUrl(t);
  await migrateStore(url);
  const run = (args: readonly string[], options: CommandOptions = {}): Promise<Ended> =>
    installation.run(args, { ...options, env: { ...options.env, DATABASE_URL: url } });
  return { installation, url, run, file: (name: string) => join(installation.folder, name) };
}

function lines(count: number, first = 1): string {
  return Array.from(
    { length: count },
    (_, index) => `{"id":${first + index},"name":"plant ${first + index}"}\n`,
  ).join('');
}

for (const engine of engines) {
  describe(`import and export on ${engine.name}`, TOGETHER, () => {
    it('import then export returns the example byte for byte, as NDJSON and as CSV', async (t) => {
      const { run, file } = await prepare(t, engine);
      const imported = await run(['import', 'alice', EXAMPLE]);
      assert.deepEqual(
        { ...imported },
        { code: 0, signal: null, stdout: '630 plants of alice created\n', stderr: '' },
      );
      assert.equal((await run(['export', 'alice', file('plants.csv')])).code, 0);
      const again = await run(['import', 'bob', file('plants.csv'), '--json']);
      assert.equal(again.stdout, '{"created":630,"skipped":0,"replaced":0,"bad":0}\n');
      const exported = await run(['export', 'bob']);
      assert.equal(exported.stderr, '630 plants of bob exported\n');
      assert.equal(exported.stdout, await readFile(EXAMPLE, 'utf8'));
    });

    it('id taken, in any batch → stops; skip finishes, replace overwrites', async (t) => {
      const { run, file } = await prepare(t, engine);
      await writeFile(file('one.ndjson'), '{"id":3500,"name":"was here"}\n');
      await writeFile(file('all.ndjson'), lines(5_000));
      assert.equal((await run(['import', 'alice', file('one.ndjson')])).code, 0);
      const failed = await run(['import', 'alice', file('all.ndjson')]);
      assert.equal(failed.code, 1);
      assert.match(
        failed.stderr,
        /line 3500: a plant with the id 3500 already exists; earlier valid lines.*3499 created.*skip.*replace/,
      );
      assert.equal((await run(['export', 'alice'])).stderr, '3500 plants of alice exported\n');
      const skipped = await run(['import', 'alice', file('all.ndjson'), '--on-conflict', 'skip']);
      assert.equal(skipped.stdout, '1500 plants of alice created, 3500 skipped\n');
      assert.match((await run(['export', 'alice'])).stdout, /"was here"/);
      const replaced = await run(['import', 'alice', file('all.ndjson'), '--on-conflict', 'replace']);
      assert.equal(replaced.stdout, '0 plants of alice created, 5000 replaced\n');
      assert.equal((await run(['export', 'alice'])).stdout, lines(5_000));
    });
  });
}

describe('import', TOGETHER, () => {
  it('invalid lines → each reported with number and reason, others imported, exit code 1', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(
      file('plants.ndjson'),
      `${lines(1)}{"id":2}\nnot JSON\n${lines(1, 4)}{"id":1e30,"name":"x"}\n`,
    );
    const { code, stdout, stderr } = await run(['import', 'alice', file('plants.ndjson')]);
    assert.deepEqual({ code, stdout }, { code: 1, stdout: '2 plants of alice created\n' });
    const [second, third, fifth, last] = stderr.trimEnd().split('\n');
    assert.equal(second, 'line 2: the field `name` is required');
    assert.match(third ?? '', /^line 3: the line is not JSON/);
    assert.match(fifth ?? '', /^line 5: the field `id` must be an integer from/);
    assert.match(last ?? '', /3.*--on-conflict skip/);
    assert.equal((await run(['export', 'alice'])).stdout, lines(1) + lines(1, 4));
  });

  it('JSON array, as a file or from standard input → fails, and creates no plant', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.json'), '[\n{"id":1,"name":"Alder"},\n{"id":2,"name":"Elm"}\n]\n');
    const stdin = createReadStream(file('plants.json'));
    for (const ended of [
      await run(['import', 'alice', file('plants.json'), '--format', 'ndjson']),
      await run(['import', 'alice'], { stdin }),
    ])
      assertFails(ended, /^plant-store: the file is a JSON array, .*\n$/);
    assert.equal((await run(['export', 'alice'])).stdout, '');
  });

  it('misspelled column of CSV → named once, its control characters escaped, and the plants are imported', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.csv'), `id,name,tags\u001b\n${'1,Alder,Alnus\n2,Elm,Ulmus\n'}`);
    const { code, stdout, stderr } = await run(['import', 'alice', file('plants.csv')]);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '2 plants of alice created\n' });
    assert.equal(stderr, 'plant-store: ignored the column `tags\\u001b`; known are id, name, tag\n');
  });

  it('misspelled field of NDJSON → named once, its control characters escaped, and the plants are imported', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), '{"id":1,"name":"Alder","tags\\u001b":"x"}\n'.repeat(2));
    const { code, stdout, stderr } = await run([
      'import',
      'alice',
      file('plants.ndjson'),
      '--on-conflict',
      'skip',
    ]);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '1 plant of alice created, 1 skipped\n' });
    assert.equal(stderr, 'plant-store: line 1: ignored the field `tags\\u001b`; known are id, name, tag\n');
  });

  it('the rest of a file cannot be read → says how many plants were created, and how to continue', async (t) => {
    const { run, file } = await prepare(t);
    const good = Array.from({ length: 4_000 }, (_, id) => `${id},plant ${id}\n`).join('');
    await writeFile(file('plants.csv'), `id,name\n${good}4000${',x'.repeat(MAX_CELLS)}\n`);
    const { code, stderr } = await run(['import', 'alice', file('plants.csv')]);
    assert.equal(code, 1);
    assert.match(stderr, /line 4002 has more than 16384 cells; correct the file/);
    const created = Number(/(\d+) plants created; .*--on-conflict skip/.exec(stderr)?.[1]);
    assert.ok(created > 0 && created <= 4_000, stderr);
    const { stdout } = await run(['export', 'alice', '-']);
    assert.equal(stdout.trimEnd().split('\n').length, created);
    const again = await run(['import', 'alice', file('plants.csv'), '--on-conflict', 'skip']);
    assert.match(again.stderr, /; correct the file\. \d+ plants created, \d+ skipped; /);
  });

  it('signal while plants are saved → ends after the save, and counts its plants', async (t) => {
    const { run, url, file } = await prepare(t, postgres);
    const other = new pg.Client({ connectionString: url });
    await other.connect();
    const signals = new EventEmitter();
    let isEnded = false;
    const onEnd = (): void => {
      isEnded = true;
    };
    try {
      await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
      await writeFile(file('plants.ndjson'), lines(2));
      const ended = run(['import', 'alice', file('plants.ndjson')], { signals, onEnd });
      const waits = `SELECT FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      await until(async () => (await rowsOf(url, waits)).length > 0);
      signals.emit('SIGINT', 'SIGINT');
      assert.ok(!isEnded);
      await other.query('ROLLBACK');
      const { signal, stderr } = await ended;
      assert.equal(signal, 'SIGINT');
      assert.match(stderr, /interrupted; 2 plants created; /);
    } finally {
      await other.end();
    }
  });

  it('signal when an export has its name already → the file is complete', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), lines(2));
    await run(['import', 'alice', file('plants.ndjson')]);
    const signals = new EventEmitter();
    const ended = run(['export', 'alice', file('out.ndjson')], { signals });
    while (!existsSync(file('out.ndjson'))) await setImmediate();
    signals.emit('SIGTERM', 'SIGTERM');
    assert.equal((await ended).signal, 'SIGTERM');
    assert.equal(await readFile(file('out.ndjson'), 'utf8'), lines(2));
  });

  it('standard input and output → NDJSON, or the format of --format', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('text'), 'id,name,tag\n1,"",""\n2,Elm,\n');
    assert.equal(
      (await run(['import', 'alice', '-', '--format', 'csv'], { stdin: createReadStream(file('text')) }))
        .code,
      0,
    );
    assert.equal((await run(['import', 'bob'], { stdin: createReadStream(EXAMPLE) })).code, 0);
    const { stdout } = await run(['export', 'alice', '-', '--format', 'csv']);
    assert.equal(stdout, await readFile(file('text'), 'utf8'));
  });

  it('export on a terminal → control characters are escaped, and NDJSON keeps its meaning', async (t) => {
    const { run, file } = await prepare(t);
    const plant = { id: 1, name: 'a\u001b[31mX\u009b31mY\u202eZ\u007f' };
    await writeFile(file('plants.ndjson'), `${JSON.stringify(plant)}\n`);
    assert.equal((await run(['import', 'alice', file('plants.ndjson')])).code, 0);
    for (const format of ['ndjson', 'csv']) {
      const { stdout } = await run(['export', 'alice', '-', '--format', format], { terminals: ['stdout'] });
      assert.match(stdout, /a\\u001b\[31mX\\u009b31mY\\u202eZ\\u007f/);
      if (format === 'ndjson') assert.deepEqual(JSON.parse(stdout), plant);
    }
    const { stdout } = await run(['export', 'alice', '-', '--format', 'csv']);
    assert.ok(stdout.includes(plant.name));
  });

  it('PostgreSQL needs longer than the statement timeout of requests → the import goes on', async (t) => {
    const { url, run } = await prepare(t, postgres);
    await execute(
      url,
      `CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END$$;
       CREATE TRIGGER slow BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION pause()`,
    );
    const { code, stdout } = await run(['import', 'alice', EXAMPLE], {
      env: { DATABASE_STATEMENT_TIMEOUT: '100' },
    });
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '630 plants of alice created\n' });
  });

  it('owner of an identity provider → accepted', async (t) => {
    const { run } = await prepare(t);
    const owner = 'https://id.example/realms/plants#7d1f-4e';
    assert.equal((await run(['import', owner, EXAMPLE])).code, 0);
    assert.equal((await run(['export', owner])).stdout, await readFile(EXAMPLE, 'utf8'));
  });

  it('interactive input → no bar', async (t) => {
    const { run } = await prepare(t);
    const { code, stderr } = await run(['import', 'alice'], { terminals: ['stdin', 'stderr'] });
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
  });

  it('terminal → bar with rate and time left, removed at the end; reports of invalid lines stay', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), `${lines(100_000)}bad\n`);
    const { stderr } = await run(['import', 'alice', file('plants.ndjson')], { terminals: ['stderr'] });
    assert.match(stderr, /\[=+-+\] +\d+% \| [\d,]+ plants \| [\d,]+\/s \| \d+s left/);
    assert.match(stderr, /line 100001: the line is not JSON/);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the test is about terminal control sequences
    assert.doesNotMatch(stderr, /\u001b\[[\d;]*m/, 'there are no colours');
  });

  for (const { args, names } of [
    { args: ['two words', EXAMPLE], names: /OWNER/ },
    { args: ['https://id.example/realms#', EXAMPLE], names: /OWNER.*https:\/\/id\.example#7d1f/ },
    { args: ['alice', 'plants.txt'], names: /plants\.txt.*--format ndjson.*--format csv/ },
    { args: ['alice', 'nosuch'], names: /cannot read \/.*\/nosuch: there is no such file\n/ },
    { args: ['alice', '.'], names: /cannot read \/.*\/\.: it is a folder\n/ },
    { args: ['alice', 'nosuch.csv'], names: /cannot read \/.*\/nosuch\.csv: there is no such file\n/ },
    { args: ['alice', '.', '--format', 'csv'], names: /cannot read \/.*\/\.: it is a folder\n/ },
    { args: ['alice', '', '--format', 'csv'], names: /argument 'file'.*must name a file/ },
    { args: ['alice', EXAMPLE, '--format', 'xml'], names: /--format.*ndjson, csv/ },
    { args: ['alice', EXAMPLE, '--on-conflict', 'panic'], names: /--on-conflict.*fail, skip, replace/ },
    { args: ['alice', EXAMPLE, '--format', 'csv'], names: /id,name,tag/ },
  ]) {
    it(`${args.join(' ').replace(EXAMPLE, 'FILE')} → rejected with the reason`, async (t) => {
      const { run, file } = await prepare(t);
      await writeFile(file('plants.txt'), '');
      const { code, stdout, stderr } = await run(['import', ...args]);
      assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
      assert.match(stderr, names);
      assert.doesNotMatch(stderr, /^ +at /m);
    });
  }

  it('file cannot be opened → fails, and no store is created', async (t) => {
    const { installation, file } = await prepare(t);
    // Exists and cannot be opened, not even by root, who ignores file modes.
    const socket = createServer().listen(file('plants.ndjson'));
    t.after(() => void socket.close());
    await once(socket, 'listening');
    const { code, stdout, stderr } = await installation.run(['import', 'alice', file('plants.ndjson')]);
    assert.deepEqual({ code, stdout }, { code: 1, stdout: '' });
    assert.match(stderr, /^plant-store: cannot read .*plants\.ndjson: it is a socket.*\n$/);
    assert.equal(existsSync(installation.file), false);
  });
});

describe('export', TOGETHER, () => {
  it('creates a complete file with mode 0600, or none; an existing file is not overwritten', async (t) => {
    const { run, file } = await prepare(t);
    await run(['import', 'alice', EXAMPLE]);
    assert.equal((await run(['export', 'alice', file('plants.csv')])).code, 0);
    assert.equal(statSync(file('plants.csv')).mode & 0o777, 0o600);
    const before = await readFile(file('plants.csv'), 'utf8');
    const again = await run(['export', 'bob', file('plants.csv')]);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /plants\.csv already exists; choose another name/);
    assert.equal(await readFile(file('plants.csv'), 'utf8'), before);
    assert.equal(existsSync(file('plants.csv.partial')), false);
    const { code, stderr } = await run(['export', 'alice', file('no/such/folder.csv')]);
    assert.equal(code, 1);
    const folder = file('no/such');
    assert.equal(stderr, `plant-store: cannot create ${folder}/folder.csv: there is no folder ${folder}\n`);
    assert.match((await run(['export', 'alice', ''])).stderr, /argument 'file'.*must name a file/);
  });

  it('name created by another process meanwhile, even a dangling link → not overwritten', async (t) => {
    const { run, file } = await prepare(t);
    await run(['import', 'alice', EXAMPLE]);
    await symlink(file('nothing'), file('plants.csv'));
    const { code, stderr } = await run(['export', 'alice', file('plants.csv')]);
    assert.equal(code, 1);
    assert.match(stderr, /plants\.csv already exists; choose another name/);
    assert.equal(await readlink(file('plants.csv')), file('nothing'));
    assert.equal(existsSync(file('plants.csv.partial')), false);
  });

  /** Calls `work` when an export to plants.csv has made its unfinished file and waits for a lock. Resolves to its end. */
  async function exportAround(t: TestContext, work: (file: (name: string) => string) => Promise<unknown>) {
    const { run, url, file } = await prepare(t, postgres);
    await run(['import', 'alice', EXAMPLE]);
    const other = new pg.Client({ connectionString: url });
    await other.connect();
    try {
      await other.query('BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE');
      const exported = run(['export', 'alice', file('plants.csv')]);
      await until(() => existsSync(file('plants.csv.partial')));
      await work(file);
      await other.query('ROLLBACK');
      return { file, exported: await exported };
    } finally {
      await other.end();
    }
  }

  it('name taken by another process while the export runs → fails, and keeps the file of that process', async (t) => {
    const { file, exported } = await exportAround(t, (file) =>
      writeFile(file('plants.csv'), 'of another process'),
    );
    assertFails(exported, /plants\.csv already exists; choose another name/);
    assert.equal(await readFile(file('plants.csv'), 'utf8'), 'of another process');
    assert.equal(existsSync(file('plants.csv.partial')), false);
  });

  it('unfinished file replaced by a link meanwhile → fails, and writes plants nowhere', async (t) => {
    const { file, exported } = await exportAround(t, async (file) => {
      await writeFile(file('victim'), 'before');
      await rename(file('plants.csv.partial'), file('moved'));
      await symlink(file('victim'), file('plants.csv.partial'));
    });
    assertFails(exported, /plants\.csv\.partial was replaced or removed .* by another user or program/);
    assert.equal(await readFile(file('victim'), 'utf8'), 'before');
    assert.equal(await readFile(file('moved'), 'utf8'), '');
    assert.equal(await readlink(file('plants.csv.partial')), file('victim'));
    assert.equal(existsSync(file('plants.csv')), false);
  });

  it('owner without plants → empty file', async (t) => {
    const { run, url } = await prepare(t);
    await run(['import', 'alice', EXAMPLE]);
    const { code, stdout, stderr } = await run(['export', 'zoe']);
    const message = `the owner zoe has no plants in the store at ${displayUrl(url)}\n`;
    assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: message });
  });

  it('to a name that ends in .jsonl or .CSV → the format of that extension, also for import', async (t) => {
    const { run, file } = await prepare(t);
    await run(['import', 'alice', EXAMPLE]);
    for (const [name, owner, begin] of [
      ['plants.jsonl', 'bob', '{"id":'],
      ['plants.CSV', 'carol', 'id,name,tag\n'],
    ] as const) {
      assert.equal((await run(['export', 'alice', file(name)])).code, 0);
      assert.ok((await readFile(file(name), 'utf8')).startsWith(begin), name);
      assert.equal((await run(['import', owner, file(name)])).code, 0);
      assert.equal((await run(['export', owner])).stdout, await readFile(EXAMPLE, 'utf8'));
    }
  });

  it('text that cannot be an owner → rejected with the rule, and no file is left', async (t) => {
    const { run, file } = await prepare(t);
    const { code, stderr } = await run(['export', 'two words', file('plants.csv')]);
    assert.equal(code, 1);
    assert.match(stderr, /^plant-store: OWNER must be 1 to 128 ASCII letters, .* or ISSUER#SUBJECT/);
    assert.equal(existsSync(file('plants.csv')), false);
  });

  it('while a service runs → same plants as its list', async (t) => {
    const installation: Installation = await newInstallation(t);
    const service = await startService(t, installation.databaseUrl);
    const headers = { ...bearer(await service.token('alice')), 'content-type': 'application/json' };
    const body = '{"id":-9223372036854775808,"name":"=1+1","tag":""}';
    assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    assert.equal((await installation.run(['export', 'alice'])).stdout, `${body}\n`);
  });
});
