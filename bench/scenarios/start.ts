import type { ChildProcess } from 'node:child_process';
import { addAbortListener, once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { createTokenIn } from '../../test/support/tokens.ts';
import { MAIN, OWNER, openBenchStore } from '../contenders/plant-store.ts';
import { spawnScript } from '../contenders/server-process.ts';
import { median } from '../report/figures.ts';
import { whole } from '../report/table.ts';
import type { Bench, Part, Report } from './scenario.ts';

/** The executable, measured if `npm run build:executable` has built it. */
const EXECUTABLE = join(import.meta.dirname, '../../dist/plant-store');
const BARE = join(import.meta.dirname, '../contenders/bare-node-server.ts');
/** Starts of each program per round: more than one, since a start is short and varies. */
const STARTS_A_ROUND = 2;
const LONGEST_MS = 15_000;

export const startPart: Part = {
  name: 'start',
  about: 'time from the start of the process to its first response',
  run: runStart,
};

async function runStart(bench: Bench): Promise<Report> {
  const { signal } = bench;
  const folder = await mkdtemp(join(bench.folder, 'start-'));
  const serveOn = (file: string): string[] => [
    ...['serve', '--port', '0', '--admin-port', '0'],
    ...['--database-url', `sqlite:${join(folder, file)}`],
  ];
  const onFile = (file: string): string[] => [MAIN, ...serveOn(file)];
  const token = await createStore(`sqlite:${join(folder, 'kept.db')}`);
  // Starts once without measuring, since the first start fills the compile cache.
  await timeToAnswer(onFile('kept.db'), signal, token);
  const times = {
    fresh: [] as number[],
    kept: [] as number[],
    executable: [] as number[],
    bare: [] as number[],
  };
  for (let round = 0; round < STARTS_A_ROUND * bench.plan.rounds; round += 1) {
    times.fresh.push(await timeToAnswer(onFile(`fresh-${round}.db`), signal));
    times.kept.push(await timeToAnswer(onFile('kept.db'), signal, token));
    if (existsSync(EXECUTABLE))
      times.executable.push(
        await timeToAnswer(serveOn(`executable-${round}.db`), signal, undefined, EXECUTABLE),
      );
    times.bare.push(await timeToAnswer([BARE], signal, ''));
  }
  const row = (name: string, values: readonly number[]): string[] => [
    `  ${name}`,
    whole(median(values)),
    whole(Math.min(...values)),
    whole(Math.max(...values)),
  ];
  return {
    tables: [
      [
        ['start to first answer, ms', 'median', 'least', 'most'],
        row('plant-store, a new store', times.fresh),
        row('plant-store, an existing empty store', times.kept),
        ...(times.executable.length > 0 ? [row('executable, a new store', times.executable)] : []),
        row('bare node:http', times.bare),
      ],
    ],
    results: { start: median(times.fresh) },
    json: times,
    contenders: [],
  };
}

async function createStore(databaseUrl: string): Promise<string> {
  const store = await openBenchStore(databaseUrl);
  const { secret } = await createTokenIn(store, OWNER);
  await store.close();
  return secret;
}

/**
 * Returns the milliseconds from a start until a list gets a 200. Without `token`, uses the token that a new
 * store prints.
 */
async function timeToAnswer(
  args: readonly string[],
  stop: AbortSignal,
  token?: string,
  program?: string,
): Promise<number> {
  const signal = AbortSignal.any([stop, AbortSignal.timeout(LONGEST_MS)]);
  const begin = performance.now();
  const child = spawnScript(args, ['ignore', 'pipe', 'ignore'], program);
  const ended = once(child, 'exit');
  using _ = addAbortListener(signal, () => child.kill('SIGTERM'));
  try {
    const said = await read(
      child,
      token === undefined ? /"url":"([^"]+)".*(plt_\w{49})/s : /"url":"([^"]+)"/,
    );
    const answer = await fetch(`${said[1]}/plants`, {
      headers: { authorization: `Bearer ${token ?? said[2]}` },
      signal,
    });
    if (answer.status !== 200) throw new Error(`the first response was ${answer.status}`);
    await answer.arrayBuffer();
    return performance.now() - begin;
  } finally {
    child.kill('SIGTERM');
    await ended;
    stop.throwIfAborted();
  }
}

async function read(child: ChildProcess, wanted: RegExp): Promise<RegExpExecArray> {
  let output = '';
  for await (const chunk of child.stdout ?? []) {
    output += chunk;
    const found = wanted.exec(output);
    if (found !== null) return found;
  }
  throw new Error(`the process was not ready after ${LONGEST_MS} ms or exited; its output:\n${output}`);
}
