import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { copyFile, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, it } from 'node:test';
import { promisify } from 'node:util';
import manifest from '../../../package.json' with { type: 'json' };
import { postgres } from '../../support/engines.ts';
import { newInstallation, type ProgramOptions } from '../../support/program.ts';
import { listenOnFreePort } from '../../support/servers/free-port.ts';
import { bearer } from '../../support/service.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../../..');

/** A folder that is the root of the file system for the executable, with the libraries of C and nothing else. */
const machine = await newInstallation({ after });
const executable = join(machine.folder, 'plant-store');
await run(process.execPath, [join(ROOT, 'build/executable.ts'), '--output', executable]);
await copyLibraries();
for (const folder of ['data', 'tmp']) await mkdir(join(machine.folder, folder));

/** Copies the libraries that the executable loads, and their loader. */
async function copyLibraries(): Promise<void> {
  const { stdout } = await run('ldd', [executable]);
  for (const [file] of stdout.matchAll(/(?<=\s)\/\S+/g)) {
    await mkdir(join(machine.folder, dirname(file)), { recursive: true });
    await copyFile(file, join(machine.folder, file));
  }
}

/** Resolves to the SHA-256 of a file. */
async function digestOf(file: string): Promise<string> {
  return hash('sha256', await readFile(file));
}

/** Runs the executable in place of the program, without variables other than these. */
function isolated(variables: Readonly<Record<string, string>>): ProgramOptions {
  const pairs = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
  // Only root may change the root folder; others become root of a new namespace.
  const enter = process.getuid?.() === 0 ? [] : ['/usr/bin/unshare', '--map-root-user'];
  return {
    wrap: ([, , ...args]) => [
      'env',
      '-i',
      ...pairs,
      ...enter,
      '/usr/sbin/chroot',
      machine.folder,
      '/plant-store',
      ...args,
    ],
  };
}

describe('the executable on a machine without Node', () => {
  it('loads only libraries of systems with glibc and libstdc++', async () => {
    const { stdout } = await run('ldd', [executable]);
    const names = [...stdout.matchAll(/(?<=^\s+(?:\/\S*\/)?)(?:ld-linux|lib|linux-vdso)[\w+-]*/gm)].map(
      ([name]) => name,
    );
    const expected = [
      'ld-linux',
      'libc',
      'libdl',
      'libgcc_s',
      'libm',
      'libpthread',
      'libstdc++',
      'linux-vdso',
    ];
    assert.deepEqual(names.map((name) => name.replace(/(?<=ld-linux)-.*/, '')).sort(), expected);
  });

  it('first start → serves, with the page; every command works', async () => {
    const store = isolated({ DATABASE_URL: 'sqlite:/data/plants.db' });
    const service = await machine.serve(store);
    // Must be ignored: Node would open its debugger, and write so to stderr.
    service.kill('SIGUSR1');
    const secret = await service.wrote(() => /plt_\w{49}/.exec(service.output.stdout)?.[0]);
    const headers = { ...bearer(secret), 'content-type': 'application/json' };
    const create = await fetch(`${service.url}/plants`, {
      method: 'POST',
      headers,
      body: '{"id":9007199254740993,"name":"Alder"}',
    });
    assert.deepEqual([create.status, await create.json()], [200, { name: 'Alder' }]);
    const list = await fetch(`${service.url}/plants`, { headers });
    assert.deepEqual(await list.json(), [{ name: 'Alder' }]);
    for (const path of ['/docs', '/docs/scalar.js', '/openapi.json']) {
      const answer = await fetch(service.url + path);
      assert.equal(answer.status, 200, path);
      assert.ok((await answer.arrayBuffer()).byteLength > 500, path);
    }

    await writeFile(join(machine.folder, 'data/more.csv'), 'id,name,tag\n1,Birch,\n');
    const ok = async (args: readonly string[], output: RegExp): Promise<void> => {
      const { code, stdout, stderr } = await machine.runProcess(args, store);
      assert.equal(code, 0, stderr);
      assert.match(stdout + stderr, output, args.join(' '));
    };
    await ok(['--version'], new RegExp(`^${manifest.version}\n$`));
    await ok(['--help'], /Usage: plant-store /);
    await ok(['migrate'], /./);
    await ok(['openapi'], /"openapi": ?"3\.1/);
    await ok(['token', 'create', 'alice'], /^plt_/);
    await ok(['token', 'list'], /alice/);
    await ok(['import', 'default', '/data/more.csv'], /1 plant of default created/);
    await ok(['export', 'default', '/data/all.ndjson'], /2/);
    await ok(['backup', '/data/backup.db'], /./);
    await ok(['check'], /./);
    await ok(['copy', 'sqlite:/data/backup.db', 'sqlite:/data/copy.db'], /copied and verified: 2 plants/);
    assert.match(await readFile(join(machine.folder, 'data/all.ndjson'), 'utf8'), /"id":9007199254740993,/);
    const remove = await fetch(`${service.url}/plants/9007199254740993`, { method: 'DELETE', headers });
    assert.equal(remove.status, 204);
    const { code, signal, stderr } = await service.stop();
    assert.deepEqual({ code, signal, stderr }, { code: 0, signal: null, stderr: '' });
  });

  it('the script that a release runs → passes with the executable, fails with another program', async () => {
    const script = join(ROOT, 'build/try-executable.ts');
    await run(process.execPath, [script, executable]);
    await assert.rejects(run(process.execPath, [script, process.execPath]), {
      code: 1,
      message: new RegExp(process.version),
    });
  });

  it('NODE_COMPILE_CACHE names a new folder, umask 0 → writable by its owner only', async () => {
    const { wrap = (same) => same } = isolated({ NODE_COMPILE_CACHE: '/compiled' });
    const { code, stderr } = await machine.runProcess(['--version'], {
      wrap: (command) => ['bash', '-c', 'umask 000 && exec "$@"', 'bash', ...wrap(command)],
    });
    assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
    for (const path of ['', ...(await readdir(join(machine.folder, 'compiled')))])
      assert.equal((await stat(join(machine.folder, 'compiled', path))).mode & 0o022, 0, path);
  });

  it('serves from PostgreSQL, and sends traces', async (t) => {
    const paths: unknown[] = [];
    const collector = createServer((request, response) => {
      paths.push(request.url);
      request.resume().on('end', () => response.end());
    });
    const port = await listenOnFreePort(collector);
    t.after(() => void collector.close());
    const service = await machine.serve(
      isolated({
        DATABASE_URL: await postgres.freshUrl(t),
        OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`,
      }),
    );
    assert.equal((await fetch(`${service.adminUrl}/ready`)).status, 200);
    assert.equal((await fetch(`${service.url}/plants`)).status, 401);
    assert.equal((await service.stop()).code, 0);
    assert.deepEqual(new Set(paths), new Set(['/v1/traces']));
  });

  it('another build of the same files → the same bytes', async () => {
    const again = join(machine.folder, 'again');
    const env = { ...process.env, TMPDIR: machine.folder, TZ: 'Asia/Tokyo' };
    await run(process.execPath, [join(ROOT, 'build/executable.ts'), '--output', again], {
      env,
      cwd: tmpdir(),
    });
    for (const end of ['', '.licences.txt'])
      assert.equal(await digestOf(`${again}${end}`), await digestOf(`${executable}${end}`), end);
  });

  it('comes with the licences of Node and of every bundled package', async () => {
    const licences = await readFile(`${executable}.licences.txt`, 'utf8');
    assert.match(licences, /^Node\.js 24\./);
    for (const name of Object.keys(manifest.dependencies)) assert.ok(licences.includes(`\n${name} `), name);
    assert.match(licences, /^highlight\.js \(BSD-3-Clause\)$/m);
    assert.ok((await stat(executable)).mode & 0o100);
  });
});
