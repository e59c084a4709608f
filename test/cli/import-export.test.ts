import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import { type FileHandle, open, readFile, readlink, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { migrateStore, openBulk } from '../../src/store/open-engine.ts';
import { connections, engines, type TestEngine } from '../support/engines.ts';
import {
  type Ended,
  endOf,
  type Installation,
  newInstallation,
  ON_A_TERMINAL,
  type Program,
  type ProgramOptions,
  TOGETHER,
} from '../support/program.ts';
import { bearer } from '../support/service.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));

/** Creates an installation and an empty store of an engine, so that no command reports a new store. */
async function prepare(t: TestContext, engine: TestEngine | undefined = engines[0]) {
  const installation = await newInstallation(t);
  assert.ok(engine !== undefined);
  const url = await engine.freshUrl(t);
  await migrateStore(url);
  const run = (args: readonly string[], options: ProgramOptions = {}): Promise<Ended> =>
    installation.run(args, { ...options, env: { ...options.env, DATABASE_URL: url } });
  return { installation, url, run, file: (name: string) => join(installation.folder, name) };
}

/** Creates the same, with an import that reads from a pipe that stays open. */
async function prepareToFeed(t: TestContext) {
  const prepared = await prepare(t);
  const { installation, url, file } = prepared;
  const path = file('pipe.ndjson');
  assert.equal((await endOf(installation.start([], { wrap: () => ['mkfifo', path] }))).code, 0);
  const bulk = await openBulk(url, connections);
  t.after(() => bulk.close());

  /** Resolves once a part of the text is in the store. */
  async function feed(text: string): Promise<{ program: Program; pipe: FileHandle }> {
    const program = installation.start(['import', 'alice', path], { env: { DATABASE_URL: url } });
    const pipe = await open(path, 'w');
    await pipe.write(text);
    while ((await bulk.read((contents) => contents.countPlants())) === 0) {
      assert.equal(program.output.stderr, '');
      await setImmediate();
    }
    return { program, pipe };
  }

  return { ...prepared, feed };
}

/** Redirects standard input from a file. */
function from(file: string): ProgramOptions {
  return { wrap: (command) => ['sh', '-c', 'file=$1; shift; exec "$@" < "$file"', 'sh', file, ...command] };
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
        /line 3500: a plant with the id 3500 already exists.*3499 created.*skip.*replace/,
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

describe('memory', TOGETHER, () => {
  for (const engine of engines) {
    it(`import, export, copy and check of 60 MB each fit into a heap of 48 MB on ${engine.name}`, async (t) => {
      const { installation, url, run, file } = await prepare(t, engine);
      const env = { NODE_OPTIONS: '--max-old-space-size=48' };
      const long = Array.from({ length: 3_750 }, (_, id) => `{"id":${id},"name":"${'x'.repeat(16_000)}"}\n`);
      await writeFile(file('plants.ndjson'), long);
      const other = `sqlite:${join(installation.folder, 'other.db')}`;
      for (const args of [
        ['import', 'alice', file('plants.ndjson')],
        ['export', 'alice', file('plants.csv')],
        ['copy', url, other],
        ['check'],
      ]) {
        const { code, stderr } = await run(args, { env });
        assert.equal(code, 0, `${args[0]}: ${stderr}`);
      }
    });
  }
});

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

  it('standard input and output → NDJSON, or the format of --format', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('text'), 'id,name,tag\n1,"",""\n2,Elm,\n');
    assert.equal((await run(['import', 'alice', '-', '--format', 'csv'], from(file('text')))).code, 0);
    assert.equal((await run(['import', 'bob'], from(EXAMPLE))).code, 0);
    const { stdout } = await run(['export', 'alice', '-', '--format', 'csv']);
    assert.equal(stdout, await readFile(file('text'), 'utf8'));
  });

  it('owner of an identity provider → accepted', async (t) => {
    const { run } = await prepare(t);
    const owner = 'https://id.example/realms/plants#7d1f-4e';
    assert.equal((await run(['import', owner, EXAMPLE])).code, 0);
    assert.equal((await run(['export', owner])).stdout, await readFile(EXAMPLE, 'utf8'));
  });

  it('killed → a second run with skip finishes it', async (t) => {
    const { run, file, feed } = await prepareToFeed(t);
    const { program, pipe } = await feed(lines(3_000));
    program.kill('SIGKILL');
    await program.ended;
    await pipe.close();
    await writeFile(file('plants.ndjson'), lines(4_000));
    const { code, stdout } = await run(['import', 'alice', file('plants.ndjson'), '--on-conflict', 'skip']);
    assert.deepEqual({ code, stdout }, { code: 0, stdout: '2000 plants of alice created, 2000 skipped\n' });
    assert.equal((await run(['export', 'alice'])).stdout, lines(4_000));
  });

  it('store locked → says how many are imported and how to finish', async (t) => {
    const { url, feed } = await prepareToFeed(t);
    const { program, pipe } = await feed(lines(2_000));
    using other = new DatabaseSync(url.replace('sqlite:', ''));
    other.exec('BEGIN IMMEDIATE');
    await pipe.write(lines(2_000, 2_001));
    await pipe.close();
    const { code, stderr } = await endOf(program);
    assert.equal(code, 1);
    assert.match(stderr, /database is locked.*; 2000 plants created; .*--on-conflict skip/);
  });

  it('while a service writes to the same store → both succeed', async (t) => {
    const installation = await newInstallation(t);
    const service = await installation.serve();
    const headers = { ...bearer(await installation.token('alice')), 'content-type': 'application/json' };
    const file = join(installation.folder, 'plants.ndjson');
    await writeFile(file, lines(60_000));
    const importing = installation.run(['import', 'alice', file]);
    let isImporting = true;
    void importing.finally(() => {
      isImporting = false;
    });
    let id = 0;
    async function client(): Promise<void> {
      while (isImporting) {
        id -= 1;
        const body = JSON.stringify({ id, name: 'from the service' });
        const response = await fetch(`${service.url}/plants`, { method: 'POST', headers, body });
        assert.equal(response.status, 200, await response.text());
      }
    }
    await Promise.all([importing, client(), client(), client()]);
    assert.deepEqual((await importing).stderr, '');
    assert.ok(id < 0);
    const listed: readonly unknown[] = JSON.parse(
      await (await fetch(`${service.url}/plants`, { headers })).text(),
    );
    assert.equal(listed.length, 60_000 - id);
  });

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    it(`${signal} → prints the count and how to finish, and ends by the signal`, async (t) => {
      const { run, feed } = await prepareToFeed(t);
      const { program, pipe } = await feed(lines(5_000));
      program.kill(signal);
      const ended = await endOf(program);
      await pipe.close();
      assert.equal(ended.signal, signal);
      const message =
        /^plant-store: interrupted; (\d+) plants? created; import the file again with --on-conflict skip to finish\n$/;
      const [, created] = message.exec(ended.stderr) ?? [];
      const { stdout } = await run(['check', '--json']);
      assert.equal(JSON.parse(stdout).plants, Number(created), ended.stderr);
    });
  }

  it('interactive input → no bar', async (t) => {
    const { run } = await prepare(t);
    const isTTY = 'process.stderr.isTTY=process.stdin.isTTY=true';
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${isTTY}` };
    const { code, stderr } = await run(['import', 'alice'], { env });
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
  });

  it('terminal → bar with rate and time left, removed at the end; reports of invalid lines stay', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), `${lines(100_000)}bad\n`);
    const { stderr } = await run(['import', 'alice', file('plants.ndjson')], { env: ON_A_TERMINAL });
    assert.match(stderr, /\[=+-+\] +\d+% \| [\d,]+ plants \| [\d,]+\/s \| \d+s left/);
    assert.match(stderr, /line 100001: the line is not JSON/);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the test is about terminal control sequences
    assert.doesNotMatch(stderr, /\u001b\[[\d;]*m/, 'there are no colours');
  });

  for (const { args, names } of [
    { args: ['two words', EXAMPLE], names: /OWNER/ },
    { args: ['https://id.example/realms#', EXAMPLE], names: /OWNER.*https:\/\/id\.example#7d1f/ },
    { args: ['alice', 'plants.txt'], names: /plants\.txt.*--format ndjson.*--format csv/ },
    { args: ['alice', 'nosuch.csv'], names: /cannot read nosuch\.csv: there is no such file\n/ },
    { args: ['alice', '.', '--format', 'csv'], names: /cannot read \.: it is a folder\n/ },
    { args: ['alice', '', '--format', 'csv'], names: /argument 'file'.*must name a file/ },
    { args: ['alice', EXAMPLE, '--format', 'xml'], names: /--format.*ndjson, csv/ },
    { args: ['alice', EXAMPLE, '--on-conflict', 'panic'], names: /--on-conflict.*fail, skip, replace/ },
    { args: ['alice', EXAMPLE, '--format', 'csv'], names: /id,name,tag/ },
  ]) {
    it(`${args.join(' ').replace(EXAMPLE, 'FILE')} → rejected with the reason`, async (t) => {
      const { run } = await prepare(t);
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
    assert.match(stderr, /^plant-store: .*plants\.ndjson.*\n$/);
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

  it('ended by a signal → leaves no file', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), lines(200_000));
    assert.equal((await run(['import', 'alice', file('plants.ndjson')])).code, 0);
    // The program signals itself: it may end before another process can.
    const script = `import { existsSync } from 'node:fs';
      setInterval(() => existsSync('out.csv.partial') && process.kill(process.pid, 'SIGTERM'), 1)`;
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
    const { signal } = await run(['export', 'alice', file('out.csv')], { env: { NODE_OPTIONS } });
    assert.equal(signal, 'SIGTERM');
    assert.equal(existsSync(file('out.csv.partial')), false);
    assert.equal(existsSync(file('out.csv')), false);
  });

  it('reader closes the pipe early → ends silently', async (t) => {
    const { run, file } = await prepare(t);
    await writeFile(file('plants.ndjson'), lines(50_000));
    await run(['import', 'alice', file('plants.ndjson')]);
    const toHead = (command: readonly string[]) => ['bash', '-c', '"$@" | head -1', 'bash', ...command];
    const { stdout, stderr } = await run(['export', 'alice'], { wrap: toHead });
    assert.deepEqual({ stdout, stderr }, { stdout: lines(1), stderr: '' });
  });

  it('owner without plants → empty file; missing store → rejected', async (t) => {
    const { installation, run } = await prepare(t);
    await run(['import', 'alice', EXAMPLE]);
    const { code, stdout, stderr } = await run(['export', 'zoe']);
    assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: 'zoe has no plants\n' });
    const none: Ended = await installation.run(['export', 'alice']);
    assert.equal(none.code, 1);
    assert.match(none.stderr, /there is no store at .*--database-url/);
  });

  it('while a service runs → same plants as its list', async (t) => {
    const installation: Installation = await newInstallation(t);
    const service = await installation.serve();
    const headers = { ...bearer(await installation.token('alice')), 'content-type': 'application/json' };
    const body = '{"id":-9223372036854775808,"name":"=1+1","tag":""}';
    assert.equal((await fetch(`${service.url}/plants`, { method: 'POST', headers, body })).status, 200);
    assert.equal((await installation.run(['export', 'alice'])).stdout, `${body}\n`);
  });
});
