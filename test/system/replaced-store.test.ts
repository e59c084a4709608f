import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { describe, it, type TestContext } from 'node:test';
import { CHARACTERS_BETWEEN_CHECKPOINTS } from '../../src/store/sqlite/connection.ts';
import { canRun, needs } from '../support/needs.ts';
import { until } from '../support/patience.ts';
import {
  type Installation,
  newInstallation,
  type Program,
  type Service,
  TOGETHER,
} from '../support/program.ts';
import { bearer } from '../support/service.ts';

const PRODUCTION = { NODE_ENV: 'production' };

const NEEDS_STRACE = needs('strace', canRun('strace', '-o', '/dev/null', 'true'));

async function create({ url }: Service, token: string, id: number, name = `plant ${id}`): Promise<number> {
  const headers = { ...bearer(token), 'Content-Type': 'application/json' };
  const body = JSON.stringify({ id, name });
  const response = await fetch(`${url}/plants`, { method: 'POST', headers, body });
  await response.text();
  return response.status;
}

async function countOf({ url }: Service, token: string): Promise<number> {
  const listed: unknown = await (await fetch(`${url}/plants`, { headers: bearer(token) })).json();
  return Array.isArray(listed) ? listed.length : -1;
}

/** Bytes that a pipe holds on Linux (pipe(7)). */
const PIPE_BYTES = 65_536;

interface Suspended {
  readonly program: Program;
  readonly resume: () => Promise<void>;
}

/** An export that waits for the reader of its output. */
async function suspendedExport({ file, start }: Installation): Promise<Suspended> {
  const pipe = `${file}.pipe`;
  execFileSync('mkfifo', [pipe]);
  const program = start(['export', 'alice'], {
    wrap: (command) => ['sh', '-c', 'pipe=$1; shift; exec "$@" > "$pipe"', 'sh', pipe, ...command],
  });
  const reader = await open(pipe);
  await reader.read(Buffer.alloc(1));
  return {
    program,
    resume: async () => {
      await reader.readFile();
      await reader.close();
    },
  };
}

/** A backup that is stopped at the first write of its copy. */
async function suspendedBackup({ file, start }: Installation): Promise<Suspended> {
  const copy = `${file}.copy`;
  const trace = `${file}.trace`;
  const signal = 'inject=pwrite64:signal=SIGSTOP:when=1';
  const program = start(['backup', copy], {
    wrap: (command) => ['strace', '-D', '-f', '-o', trace, '-P', `${copy}.partial`, '-e', signal, ...command],
  });
  await until(async () => existsSync(trace) && /stopped by SIGSTOP/.test(await readFile(trace, 'utf8')));
  return { program, resume: async () => program.kill('SIGCONT') };
}

describe('index of the log removed while the service runs', TOGETHER, () => {
  /** A service with 5 plants, whose index was removed. */
  async function serveWithoutIndex(t: TestContext) {
    const installation = await newInstallation(t);
    const token = await installation.token('alice');
    const service = await installation.serve({ env: PRODUCTION });
    for (let id = 1; id <= 5; id += 1) assert.equal(await create(service, token, id), 200);
    await rm(`${installation.file}-shm`);
    return { installation, token, service };
  }

  async function assertPlants(installation: Installation, counts: Readonly<Record<string, number>>) {
    assert.equal((await installation.run(['check'])).code, 0);
    const again = await installation.serve({ env: PRODUCTION });
    for (const [token, count] of Object.entries(counts)) assert.equal(await countOf(again, token), count);
    assert.equal((await again.stop()).code, 0);
  }

  for (const [what, end, status, code] of [
    ['a write', (service: Service, token: string) => create(service, token, 1_000), 503, 1],
    ['/ready', async ({ adminUrl }: Service) => (await fetch(`${adminUrl}/ready`)).status, 503, 1],
    ['the stop', async (service: Service) => void service.kill('SIGTERM'), undefined, 0],
  ] as const)
    it(`a command writes, then ${what} notices it → the next start has the plants of both`, async (t) => {
      const { installation, token, service } = await serveWithoutIndex(t);
      const plants = `${installation.file}.ndjson`;
      await writeFile(plants, [6, 7, 8].map((id) => `{"id":${id},"name":"imported"}\n`).join(''));
      assert.equal((await installation.run(['import', 'alice', plants])).code, 0);
      assert.equal(await end(service, token), status);
      assert.equal((await service.ended).code, code);
      await assertPlants(installation, { [token]: 8 });
    });

  it('another service begins the log again, then the first stops → the next start has the plants of both', async (t) => {
    const { installation, token, service } = await serveWithoutIndex(t);
    const other = await installation.token('bob');
    const second = await installation.serve({ flags: ['--body-limit', '16777216'], env: PRODUCTION });
    // So long that a checkpoint follows.
    const long = 'x'.repeat(CHARACTERS_BETWEEN_CHECKPOINTS);
    assert.equal(await create(second, other, 1, long), 200);
    for (let id = 2; id <= 5; id += 1) assert.equal(await create(second, other, id), 200);
    assert.equal((await service.stop()).code, 0);
    assert.equal(await create(second, other, 6), 200);
    assert.equal((await second.stop()).code, 0);
    await assertPlants(installation, { [token]: 5, [other]: 6 });
  });

  for (const [command, suspend, options] of [
    ['export', suspendedExport, {}],
    ['backup', suspendedBackup, NEEDS_STRACE],
  ] as const)
    it(
      `${command} reads, a service writes and crashes → the command fails, and the next start has all plants`,
      options,
      async (t) => {
        const installation = await newInstallation(t);
        const token = await installation.token('alice');
        const plants = `${installation.file}.ndjson`;
        const name = 'x'.repeat(PIPE_BYTES / 8);
        const lines = Array.from({ length: 32 }, (_, id) => `{"id":${id},"name":"${name}"}\n`);
        await writeFile(plants, lines.join(''));
        assert.equal((await installation.run(['import', 'alice', plants])).code, 0);
        const { program, resume } = await suspend(installation);
        await rm(`${installation.file}-shm`);
        const service = await installation.serve({ env: PRODUCTION });
        for (let id = 101; id <= 105; id += 1) assert.equal(await create(service, token, id), 200);
        service.kill('SIGKILL');
        await service.ended;
        await resume();
        const { code, stderr } = await program.ended;
        assert.equal(code, 1);
        assert.match(stderr, /-shm was moved, replaced or removed while it was open/);
        await assertPlants(installation, { [token]: 37 });
      },
    );
});

describe('store file replaced while the service runs', TOGETHER, () => {
  for (const [what, end, code] of [
    ['/ready notices it', ({ adminUrl }: Service) => fetch(`${adminUrl}/ready`), 1],
    ['SIGTERM comes first', async (service: Service) => service.kill('SIGTERM'), 0],
  ] as const)
    it(`${what} → the next start serves the new file, and both files keep their plants`, async (t) => {
      const installation = await newInstallation(t);
      const { file } = installation;
      const token = await installation.token('alice');
      const service = await installation.serve({ env: PRODUCTION });
      assert.equal(await create(service, token, 0), 200);
      assert.equal((await installation.run(['backup', `${file}.backup`])).code, 0);
      // More than the batches between two checkpoints.
      for (let id = 1; id <= 80; id += 1) assert.equal(await create(service, token, id), 200);
      await rename(file, `${file}.old`);
      await copyFile(`${file}.backup`, file);
      await end(service);
      assert.equal((await service.ended).code, code);
      assert.deepEqual(await readFile(file), await readFile(`${file}.backup`));
      const left = service.log.find(({ msg }) => /no longer next to it/.test(String(msg)));
      assert.deepEqual([left?.level, left?.file], [50, `${file}-wal.1`]);

      const again = await installation.serve({ env: PRODUCTION });
      assert.equal(await countOf(again, token), 1);
      assert.equal((await again.stop()).code, 0);
      assert.ok(!existsSync(`${file}-wal`));

      await rm(file);
      await rename(`${file}.old`, file);
      await rename(`${file}-wal.1`, `${file}-wal`);
      const old = await installation.serve({ env: PRODUCTION });
      assert.equal(await countOf(old, token), 81);
      assert.equal((await old.stop()).code, 0);
    });

  it('another service serves the new file with the same log → the stop of the first takes none of its plants', async (t) => {
    const installation = await newInstallation(t);
    const { file } = installation;
    const token = await installation.token('alice');
    const first = await installation.serve({ env: PRODUCTION });
    assert.equal((await installation.run(['backup', `${file}.backup`])).code, 0);
    assert.equal(await create(first, token, 0), 200);
    await rename(file, `${file}.old`);
    await copyFile(`${file}.backup`, file);
    const second = await installation.serve({ env: PRODUCTION });
    for (let id = 1; id <= 5; id += 1) assert.equal(await create(second, token, id), 200);
    assert.equal((await first.stop()).code, 0);
    await second.stop();

    const again = await installation.serve({ env: PRODUCTION });
    const names = await (await fetch(`${again.url}/plants`, { headers: bearer(token) })).text();
    for (let id = 1; id <= 5; id += 1) assert.match(names, new RegExp(`"plant ${id}"`));
    assert.equal((await again.stop()).code, 0);
  });
});
