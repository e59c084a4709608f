import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { glob, readdir, readFile, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { compare } from '../../../bench/compare.ts';
import { autocannonGenerator } from '../../../bench/load/autocannon.ts';
import { type Job, type LoadResult, runLoad } from '../../../bench/load/generator.ts';
import { openLoop } from '../../../bench/load/open-loop.ts';
import { wrk } from '../../../bench/load/wrk.ts';
import { measureStalls } from '../../../bench/report/cpu-stalls.ts';
import { figuresOf, perCpuRatioTo, ratioOf } from '../../../bench/report/figures.ts';
import { targetsTable } from '../../../bench/report/targets.ts';
import { freshFolder } from '../../support/engines.ts';
import { needsProgram } from '../../support/needs.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { serve } from '../../support/servers/stub-server.ts';

const RUN = join(import.meta.dirname, '../../../bench/run.ts');
const SHORT = ['--rounds', '1', '--seconds', '1', '--warm-up', '0', '--no-alternatives'];

interface Written {
  readonly targets: Readonly<Record<string, number>>;
  readonly parts: {
    readonly list: readonly { readonly work: string; readonly contenders: readonly Contender[] }[];
  };
}

interface Contender {
  readonly name: string;
  readonly runs: readonly { readonly answers: number; readonly failures: number }[];
}

const benchWith = (env: NodeJS.ProcessEnv, ...args: readonly string[]) =>
  promisify(execFile)(process.execPath, [RUN, ...args], { env: { ...process.env, ...env } });

/** Variables of the service that the shell may have set. A benchmark must ignore them. */
const SET_UP = { NODE_ENV: 'production', LOG_LEVEL: 'error' };

/** Contenders that log to a folder below a file. */
async function serversIn(folder: string): Promise<readonly string[]> {
  const logs = await Array.fromAsync(glob('plant-store-bench-*/*/*/log', { cwd: folder }));
  const texts = await Promise.all(logs.map((log) => readFile(join(folder, log), 'utf8')));
  return texts.flatMap((text) => /"url":"(http:[^"]+)"/.exec(text)?.[1] ?? []);
}

async function answers(url: string): Promise<boolean> {
  return fetch(url, { headers: { connection: 'close' } }).then(
    (answer) => answer.arrayBuffer().then(() => true),
    () => false,
  );
}

/** Sends GET requests for a second, each with a distinct id. */
function jobFor(url: string, connections: number): Job {
  return {
    ...{ url, connections, headers: {}, secretsFile: undefined, seconds: 1 },
    requests: [{ method: 'GET', target: '/{id}', body: '', times: 1 }],
    ids: { order: 'sequential', first: 1 },
  };
}

/** A server that stalls once, for `ms` milliseconds, beginning `after` milliseconds after its first request. */
interface Stall {
  readonly connections: number;
  readonly after: number;
  readonly ms: number;
  /** Duration of the load. */
  readonly seconds: number;
}

describe('bench', () => {
  test('measures the chosen parts in turns, and writes them as tables and as JSON with the targets', async () => {
    const file = join(await freshFolder(), 'bench.json');
    const { stdout } = await benchWith(SET_UP, '--parts', 'list,start', ...SHORT, '--json', file);
    assert.match(stdout, /^A busy thread stalls for up to [0-9.]+ ms, and for [0-9.]+ %/m);
    assert.match(stdout, /^list of 20 +a second .*\n {2}plant-store +\S.*\n {2}bare node:http +\S/m);
    assert.match(stdout, /^start to first answer, empty store, ms +[0-9,]+ +max 400 +(?:held|missed)$/m);
    assert.match(stdout, /^create, embedded, to json-server .*not measured$/m);
    assert.doesNotMatch(stdout, /^delete {2}/m);

    const { targets, parts }: Written = JSON.parse(await readFile(file, 'utf8'));
    assert.deepEqual(
      parts.list.map(({ work }) => work),
      ['list of 20', 'list of 20, every tenth request a create'],
    );
    for (const { contenders } of parts.list) {
      assert.deepEqual(
        contenders.map(({ name }) => name),
        ['plant-store', 'bare node:http'],
      );
      for (const { answers, failures } of contenders.flatMap(({ runs }) => runs)) {
        assert.ok(answers > 0);
        assert.equal(failures, 0);
      }
    }
    assert.ok(Number(targets.start) > 0);
  });

  test('invalid option → usage error with the reason', async () => {
    await assert.rejects(benchWith({}, '--parts', 'create,water'), {
      code: 2,
      stderr: /^bench: --parts takes some of cpu,create,list,\S*, not water/,
    });
    await assert.rejects(benchWith({ PATH: '' }, '--generator', 'wrk'), {
      code: 2,
      stderr: /^bench: wrk is not installed; --help lists the flags\n$/,
    });
    await assert.rejects(benchWith({}, '--growth', 'huge'), {
      code: 2,
      stderr: '--growth takes short|full, not huge; --help lists the flags\n',
    });
    await assert.rejects(benchWith({}, '--json', '/nowhere/bench.json'), {
      code: 1,
      stderr: /^bench: Error: ENOENT: .*'\/nowhere\/bench.json'\n$/,
    });
  });

  test('without Go → one line, and the other parts run', async () => {
    const { stdout, stderr } = await benchWith({ PATH: '' }, '--parts', 'start', ...SHORT.slice(0, -1));
    assert.match(stderr, /^PocketBase: needs Go$/m);
    assert.match(stdout, /^creates per CPU second, embedded, to PocketBase .*not measured$/m);
  });

  test('an interrupt stops all processes that it started', async () => {
    const folder = await freshFolder();
    const args = [RUN, '--parts', 'list', '--seconds', '30', '--no-alternatives'];
    const child = spawn(process.execPath, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, TMPDIR: folder },
    });
    let said = '';
    let servers: readonly string[] = [];
    for await (const text of child.stderr.setEncoding('utf8')) {
      said += text;
      if (!/list of 20 …\n$/.test(said)) continue;
      servers = await serversIn(folder);
      assert.deepEqual(await Promise.all(servers.map(answers)), [true, true]);
      child.kill('SIGINT');
      child.kill('SIGINT');
    }
    assert.match(said, /^bench: stopped$/m);
    assert.deepEqual(await Promise.all(servers.map(answers)), [false, false]);
    assert.deepEqual(
      (await readdir(folder)).filter((name) => name.startsWith('plant-store-bench-')),
      [],
    );
  });

  test('each round starts with another contender, after a warm-up of all', async () => {
    const order: string[] = [];
    const contenders = ['a', 'b', 'c'].map((name) => ({
      name,
      measure: async (run: number, seconds: number) => {
        order.push(`${name}${run}`);
        return {
          answers: run,
          seconds,
          p50Ms: 1,
          p99Ms: 1,
          failures: 0,
          peakBytes: undefined,
          usage: undefined,
          cpu: undefined,
        };
      },
    }));
    const comparison = await compare('some work', contenders, { rounds: 4, seconds: 1, warmUp: 1 });
    assert.equal(order.join(' '), 'a0 b0 c0 a1 b1 c1 b2 c2 a2 c3 a3 b3 a4 b4 c4');
    for (const { runs } of comparison.contenders)
      assert.deepEqual(
        runs.map(({ answers }) => answers),
        [1, 2, 3, 4],
      );
  });

  test('a warm-up continues, with other ids, until enough requests were answered', async () => {
    const runs: number[] = [];
    const measure = async (run: number, seconds: number) => {
      runs.push(run);
      return {
        ...{ answers: 10, seconds, p50Ms: 1, p99Ms: 1, failures: 0 },
        ...{ peakBytes: undefined, usage: undefined, cpu: undefined },
      };
    };
    const plan = { rounds: 1, seconds: 1, warmUp: 1, warmUpAnswers: 25 };
    await compare('some work', [{ name: 'a', measure }], plan);
    assert.deepEqual(runs, [0, 900, 901, 1]);
  });

  test('detects stalled threads, such as more threads than cores', async () => {
    const { longestMs, share } = await measureStalls(4 * availableParallelism(), 500);
    assert.ok(share > 0.3 && share <= 1, String(share));
    assert.ok(longestMs >= 1 && longestMs < 20_000, String(longestMs));
  });

  test('reports no figure that the generator limited, and no ratio to one', () => {
    const run = (generator: number, serverMainThread: number) => ({
      ...{
        answers: 1_000,
        seconds: 1,
        p50Ms: 1,
        p99Ms: 2,
        failures: 0,
        peakBytes: undefined,
        usage: undefined,
      },
      cpu: { server: 1, serverMainThread, generator, generatorThreads: 1, others: 0 },
    });
    const limited = [run(0.97, 0.6)];
    const fair = [run(0.97, 0.95)];
    assert.equal(figuresOf(limited), undefined);
    assert.equal(figuresOf(fair)?.perSecond, 1_000);
    assert.equal(ratioOf(fair, limited), undefined);
    assert.equal(ratioOf(fair, fair)?.median, 1);
    const work = { work: 'some work', contenders: [{ name: 'a', runs: limited }] };
    assert.equal(perCpuRatioTo(work, 'b'), undefined);
    const other = fair.map((one) => ({ ...one, cpu: { ...one.cpu, server: 4 } }));
    const both = { ...work, contenders: [...work.contenders, { name: 'b', runs: other }] };
    assert.equal(perCpuRatioTo(both, 'b'), 4);
  });

  test('reports for each target whether it was met', () => {
    const rows = targetsTable({ createToEcho: 0.66, start: 401 });
    const verdictOn = (what: RegExp) => rows.find(([first]) => what.test(first ?? ''))?.at(-1);
    assert.equal(verdictOn(/^create, embedded, to the bare/), 'held');
    assert.equal(verdictOn(/^start/), 'missed');
    assert.equal(verdictOn(/^delete/), 'not measured');
  });

  test('sends each id once by autocannon, and does not count its start as its load', async (t) => {
    const ids = new Map<string, number>();
    const url = await serve(t, (request, response) => {
      const id = request.url ?? '';
      ids.set(id, (ids.get(id) ?? 0) + 1);
      response.end();
    });
    const result = await runLoad(autocannonGenerator, jobFor(url, 8), AbortSignal.timeout(PATIENCE_MS));
    assert.equal(result.failures, 0);
    assert.ok(result.answers > 0 && result.answers <= ids.size);
    assert.deepEqual(new Set(ids.values()), new Set([1]));
    const busy = Number(result.cpuSeconds) / result.seconds / autocannonGenerator.threads;
    assert.ok(busy > 0 && busy < 1.1, `each thread kept ${busy} cores busy`);
  });

  for (const { generator, options } of [
    { generator: autocannonGenerator, options: {} },
    { generator: wrk, options: needsProgram('wrk') },
  ])
    test(`${generator.name} sends each id with the token of its owner, in rotation`, options, async (t) => {
      const file = join(await freshFolder(), 'tokens');
      await writeFile(file, 'token0\ntoken1\ntoken2\n');
      const sent = new Set<string>();
      const url = await serve(t, ({ url = '', headers }, response) => {
        const id = Number(url.slice(1));
        if (id > 0) sent.add(`${headers.authorization} for ${id % 3}`);
        response.end();
      });
      const job = { ...jobFor(url, 8), secretsFile: file, ids: { order: 'sequential', first: 11 } } as const;
      const { answers, failures } = await runLoad(generator, job, AbortSignal.timeout(PATIENCE_MS));
      assert.ok(answers > 0);
      assert.equal(failures, 0);
      assert.deepEqual([...sent].toSorted(), [
        'Bearer token0 for 0',
        'Bearer token1 for 1',
        'Bearer token2 for 2',
      ]);
    });

  for (const { generator, options } of [
    { generator: autocannonGenerator, options: {} },
    { generator: wrk, options: needsProgram('wrk') },
    { generator: openLoop(200), options: {} },
  ])
    test(`${generator.name} sends the idempotency key and the body of each id`, options, async (t) => {
      const sent = new Set<string>();
      const url = await serve(t, async (request, response) => {
        const body = await text(request);
        const id = Number(body);
        sent.add(body.replace(`${id}`, 'id'));
        sent.add(String(request.headers['idempotency-key']).replace(`${id}`, 'id'));
        response.end('{}');
      });
      const job: Job = {
        ...jobFor(url, 8),
        requests: [{ method: 'POST', target: '/', idempotencyKey: '{id}-7', body: '{id}', times: 1 }],
      };
      const { answers, failures } = await runLoad(generator, job, AbortSignal.timeout(PATIENCE_MS));
      assert.ok(answers > 0);
      assert.equal(failures, 0);
      assert.deepEqual(sent, new Set(['id', 'id-7']));
    });

  test('counts a server that never answers as a failure', async (t) => {
    const url = await serve(t, () => {});
    const { answers, failures } = await runLoad(
      autocannonGenerator,
      jobFor(url, 1),
      AbortSignal.timeout(PATIENCE_MS),
    );
    assert.deepEqual([answers, failures], [0, 1]);
  });

  async function loadStalling(
    t: TestContext,
    { connections, after, ms, seconds }: Stall,
  ): Promise<LoadResult> {
    let stallAt: number | undefined;
    const url = await serve(t, (_request, response) => {
      const now = performance.now();
      stallAt ??= now + after;
      setTimeout(() => response.end('{}'), now < stallAt ? 0 : Math.max(0, stallAt + ms - now));
    });
    return runLoad(openLoop(200), { ...jobFor(url, connections), seconds }, AbortSignal.timeout(PATIENCE_MS));
  }

  test('counts the time that requests wait while a server stalls', async (t) => {
    const STALL_MS = 400;
    const result = await loadStalling(t, { connections: 1, after: 1_200, ms: STALL_MS, seconds: 2 });
    // On one connection, 80 of the 200 measured requests fall due during the stall. Counted from the sending, only one
    // of them would be slow.
    assert.ok(result.answers >= 200 && result.answers <= 400, `${result.answers} responses`);
    assert.ok(Number(result.p99Ms) > 0.9 * STALL_MS, `p99 ${result.p99Ms} ms`);
  });

  test('does not count what is late in the first second of a constant rate', async (t) => {
    const STALL_MS = 900;
    const result = await loadStalling(t, { connections: 8, after: 0, ms: STALL_MS, seconds: 1.2 });
    assert.ok(result.answers >= 40 && result.answers < 240, `${result.answers} responses`);
    assert.ok(Number(result.p99Ms) < 0.9 * STALL_MS, `p99 ${result.p99Ms} ms`);
  });
});
