import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ndjson } from '../../src/formats/ndjson.ts';
import { fillStore } from '../long/long-list.ts';
import { execute } from '../support/engines.ts';
import { damagePage } from '../support/faults/damaged-file.ts';
import { until } from '../support/patience.ts';
import { assertFails, endOf, type Installation, newInstallation, TOGETHER } from '../support/program.ts';

const EXAMPLE = fileURLToPath(new URL('../../examples/plants.ndjson', import.meta.url));

async function succeed(installation: Installation, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await installation.run(args);
  assert.equal(code, 0, stderr);
  return stdout;
}

async function importPlants(installation: Installation, count: number): Promise<void> {
  const plants = Array.from({ length: count }, (_, id) => ({ id: BigInt(id), name: `plant ${id}` }));
  const file = join(installation.folder, 'before.ndjson');
  await writeFile(file, ndjson.write(plants));
  await succeed(installation, 'import', 'alice', file);
}

function backupsIn({ folder }: Installation): readonly string[] {
  return readdirSync(folder).filter((name) => name.startsWith('backup'));
}

const PASSWORD_ELSEWHERE = ', with the password in PGPASSWORD or ~/.pgpass';

describe('backup', TOGETHER, () => {
  it('creates one file with mode 0600, without other files; an existing file is not overwritten', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'import', 'alice', EXAMPLE);
    const file = join(installation.folder, 'backup.db');
    await succeed(installation, 'backup', file);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(backupsIn(installation), ['backup.db']);
    const before = await readFile(file);
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /backup\.db already exists; choose another name/);
    const nameless = await installation.run(['backup', '']);
    assert.equal(nameless.code, 1);
    assert.match(nameless.stderr, /argument 'file'.*must name a file/);
    const toOutput = await installation.run(['backup', '-']);
    assert.equal(toOutput.code, 1);
    assert.match(toOutput.stderr, /cannot be written to standard output; name a file/);
    assert.ok((await readFile(file)).equals(before));
  });

  it('damaged store → fails and leaves no backup file', async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 5_000);
    await damagePage(installation.file);
    const file = join(installation.folder, 'backup.db');
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /damaged|malformed/);
    assert.deepEqual(backupsIn(installation), []);
  });

  it('interrupted → leaves no file; what a killed backup left does not get into the next one', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'token', 'create', 'alice');
    await fillStore(installation.databaseUrl, 'alice', 300_000, 100);
    const file = join(installation.folder, 'backup.db');
    for (const signal of ['SIGINT', 'SIGKILL'] as const) {
      const program = installation.start(['backup', file]);
      const ended = endOf(program);
      await until(() => existsSync(`${file}.partial-journal`) || existsSync(file));
      program.kill(signal);
      await ended;
      // On a slow machine the signal may arrive after the end.
      await rm(file, { force: true });
      if (signal === 'SIGINT') assert.deepEqual(backupsIn(installation), []);
    }
    await rm(`${file}.partial`, { force: true });
    await succeed(installation, 'backup', file);
    assert.deepEqual(backupsIn(installation), ['backup.db']);
    const env = { DATABASE_URL: `sqlite:${file}` };
    assert.equal((await installation.run(['check'], { env })).code, 0);
  });

  it('unfinished file of another run → fails, names the remedy and keeps the file', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'migrate');
    const file = join(installation.folder, 'backup.db');
    await writeFile(`${file}.partial`, 'half');
    const { code, stderr } = await installation.run(['backup', file]);
    assert.equal(code, 1);
    assert.match(stderr, /backup\.db\.partial.*remove it/);
    assert.equal(await readFile(`${file}.partial`, 'utf8'), 'half');
  });

  it('unfinished file replaced by a link meanwhile → fails, and keeps no plants', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'import', 'alice', EXAMPLE);
    const [victim, moved, partial] = ['victim', 'moved', 'backup.db.partial'].map((name) =>
      join(installation.folder, name),
    ) as [string, string, string];
    // The same rows as in the store: the check of the copy finds no difference.
    await succeed(installation, 'backup', victim);
    const before = await readFile(victim);
    // Node emits the event when the check of the copy starts its thread.
    const script = `import { renameSync, symlinkSync } from 'node:fs';
      process.on('worker', () => {
        renameSync(${JSON.stringify(partial)}, ${JSON.stringify(moved)});
        symlinkSync(${JSON.stringify(victim)}, ${JSON.stringify(partial)});
      });`;
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(script)}`;
    assertFails(
      await installation.runProcess(['backup', 'backup.db'], { env: { NODE_OPTIONS } }),
      /backup\.db\.partial was replaced or removed .* by another user or program/,
    );
    assert.ok((await readFile(victim)).equals(before));
    assert.equal(statSync(moved).size, 0);
    assert.equal(await readlink(partial), victim);
    assert.deepEqual(backupsIn(installation), ['backup.db.partial']);
  });

  for (const ending of ['-wal', '-shm', '-journal'])
    it(`a file that ends in ${ending} is left of another database → fails, and names it`, async (t) => {
      const installation = await newInstallation(t);
      await succeed(installation, 'migrate');
      const file = join(installation.folder, 'backup.db');
      await writeFile(`${file}${ending}`, 'left');
      assertFails(
        await installation.run(['backup', file]),
        new RegExp(`backup\\.db${ending} already exists; choose another name\n$`),
      );
      assert.deepEqual(backupsIn(installation), [`backup.db${ending}`]);
    });

  it('a name that is taken, as by the store or a folder → fails, and does not say to remove it', async (t) => {
    const { run, file, folder } = await newInstallation(t);
    await run(['migrate']);
    const reason = `plant-store: the file ${file} already exists; choose another name\n`;
    assert.equal((await run(['backup', file])).stderr, reason);
    await symlink('.', join(folder, 'link'));
    for (const name of [folder, `${folder}/`, join(folder, 'link')])
      assert.equal(
        (await run(['backup', name])).stderr,
        `plant-store: cannot create ${name}: it is a folder; name a file in it\n`,
      );
  });

  it('a symbolic link to an absent file is left of another database → fails, and names it', async (t) => {
    const installation = await newInstallation(t);
    await succeed(installation, 'migrate');
    const file = join(installation.folder, 'backup.db');
    await symlink(join(installation.folder, 'absent'), `${file}-wal`);
    assertFails(await installation.run(['backup', file]), /backup\.db-wal already exists/);
    assert.deepEqual(backupsIn(installation), ['backup.db-wal']);
  });

  for (const ending of ['-wal', '-shm', '-journal', '-service'])
    it(`a name that ends in ${ending} → fails, since the next command could delete such a file`, async (t) => {
      const installation = await newInstallation(t);
      await succeed(installation, 'migrate');
      const file = `${installation.file}${ending}`;
      assertFails(
        await installation.run(['backup', file]),
        new RegExp(`plants\\.db${ending} cannot be used.*ends in ${ending}.*choose another name`),
      );
      assert.ok(!existsSync(file));
    });

  for (const [what, sql] of [
    ['an empty file', 'SELECT 1'],
    ['the database of another program', 'CREATE TABLE migrations (id integer)'],
  ] as const)
    it(`${what} instead of a store → fails and leaves no backup file`, async (t) => {
      const installation = await newInstallation(t);
      await writeFile(installation.file, '');
      await execute(installation.databaseUrl, sql);
      assertFails(await installation.run(['backup', 'backup.db']), /plants\.db is no store: it is empty, or/);
      assert.deepEqual(backupsIn(installation), []);
    });

  it('missing store → none is created; PostgreSQL → names pg_dump, without the password', async (t) => {
    const installation = await newInstallation(t);
    const missing = await installation.run(['backup', join(installation.folder, 'backup.db')]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /there is no store at/);
    assert.deepEqual(readdirSync(installation.folder), []);
    for (const [url, shown, ending] of [
      ['postgres://me:secret@localhost/plants', 'postgres://me@localhost/plants', PASSWORD_ELSEWHERE],
      ['postgres://h/d?user=me&password=secret', 'postgres://h/d?user=me', PASSWORD_ELSEWHERE],
      ['postgres://h/d?password=secret&user=me', 'postgres://h/d?user=me', PASSWORD_ELSEWHERE],
      ['postgres://me@srv:secret@h/d?options=a@b', 'postgres://me%40srv@h/d?options=a@b', PASSWORD_ELSEWHERE],
      ['postgres://a@b@srv:secret@h/d', 'postgres://a%40b%40srv@h/d', PASSWORD_ELSEWHERE],
      ['postgres://me@localhost/plants', 'postgres://me@localhost/plants', ''],
    ] as const) {
      const { code, stderr } = await installation.run(['backup', 'plants.dump'], {
        env: { DATABASE_URL: url },
      });
      assert.equal(code, 1);
      assert.match(
        stderr,
        /run \(umask 077 && pg_dump --format=custom --file='\/.*\/plants\.dump' 'postgres:/,
      );
      assert.ok(stderr.endsWith(` '${shown}')${ending}\n`), stderr);
    }
  });

  it('PostgreSQL, names with quotation marks → a shell passes them on to pg_dump', async (t) => {
    const { folder, run } = await newInstallation(t);
    const url = `postgres://localhost/it's"$HOME"`;
    const { stderr } = await run(['backup', "it's.dump"], { env: { DATABASE_URL: url } });
    const command = stderr.slice(stderr.indexOf('(umask'));
    const shell = execFileSync('sh', ['-c', `pg_dump() { printf '%s\\n' "$@"; }; ${command}`]);
    assert.equal(shell.toString(), `--format=custom\n--file=${folder}/it's.dump\n${url}\n`);
  });

  it('store cannot be opened → same message as other commands', async (t) => {
    const installation = await newInstallation(t);
    const env = { DATABASE_URL: `sqlite:${installation.folder}` };
    const { code, stderr } = await installation.run(['backup', join(installation.folder, 'x')], { env });
    const { stderr: ofCheck } = await installation.run(['check'], { env });
    assert.match(stderr, /^plant-store: .* is a folder; name a file in it\n$/);
    assert.deepEqual([code, stderr], [1, ofCheck]);
  });

  it('on a terminal → shows the progress', async (t) => {
    const installation = await newInstallation(t);
    await importPlants(installation, 60_000);
    const file = join(installation.folder, 'backup.db');
    const { code, stderr } = await installation.run(['backup', file], { terminals: ['stderr'] });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /\[=*-*\] \d+% \| .* pages/);
  });
});
