import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  openConnections,
  peakMemory,
  resetPeakMemory,
  residentMemory,
} from '../../support/process-resources.ts';
import { cpuSeconds } from '../../support/servers/process-tree.ts';
import type { Attack, AttackReport, Event, Job } from './attack.ts';
import { type OthersFigures, startOthers } from './other-clients.ts';
import type { Target } from './target.ts';
import type { AbuseFigures } from './verdict.ts';

const ATTACKER = fileURLToPath(new URL('attacker-process.ts', import.meta.url));
const LOOK_EVERY_MS = 200;
/** The other clients open connections continuously, and the service closes each of them a little later. */
const NEW_OF_OTHERS = 3;
/** Connections may close faster than they open. */
const STEADY_MS = 1_000;
/** Share of one core, in addition to the use before the attack. */
const BUSY = 0.25;
/**
 * Min requests of the other clients before the attack. They warm the service up, and show how many bytes it reads per
 * request.
 */
const CALM_REQUESTS = 100;
const IDLE_LOOK_MS = 200;
const USUAL_WATCH_S = 0.5;
let nextId = 0;

/** Attacks a target and measures it. Stops the target at the end. */
export async function measureAbuse(
  target: Target,
  attack: Attack,
  calmSeconds: number,
): Promise<AbuseFigures> {
  await using ending = new AsyncDisposableStack();
  const attacker = await startAttacker({
    url: attack.port === 'admin' ? target.adminUrl : target.url,
    token: target.token,
    attack,
  });
  ending.defer(() => void attacker.child.kill('SIGKILL'));
  const plants = await target.plants();
  const { event } = attack;

  let others = othersOf(target);
  ending.defer(async () => void (await others.stop()));
  const calm = await measureCalm(target, others, calmSeconds);
  let seen: OthersFigures | undefined;
  if (event?.kind === 'suspend') await others.stop();

  const before = await residentMemory(target);
  await resetPeakMemory(target);
  const port = Number(new URL(attack.port === 'admin' ? target.adminUrl : target.url).port);
  const openBefore = await openConnections(port);
  const readBefore = await bytesRead(target);
  if (event?.kind === 'unread output') await target.setOutputRead(false);
  const watch = watchConnections(port, openBefore, attacker.isConnected, () => {
    if (attack.bounds.closedMs !== undefined) attacker.stop();
  });
  ending.defer(async () => void (await watch.end()));
  attacker.begin();
  const stopped = await cause(event, target, async () => {
    seen = await others.stop();
  });
  const report = await attacker.report;
  const watched = await watch.end();
  const { held } = watched;
  const closedMs = report.closed >= attack.connections ? report.lastClosedMs : watched.closedMs;
  const idleMs = stopped ? undefined : await idleAfter(target, calm.cpu, attack);
  const readInAll = stopped ? 0 : (await bytesRead(target)) - readBefore;
  const memory = stopped?.memory ?? (await memoryOf(target));
  if (event?.kind === 'suspend') {
    others = othersOf(target);
    await setTimeout(LOOK_EVERY_MS);
  }
  seen ??= await others.stop();
  const fromStore = calm.fromStoreEach * (seen.requests.count + seen.live.count);
  const readBytes = Math.max(0, readInAll - seen.sentBytes - fromStore);
  const isUnchanged = plants === (await target.plants());
  const stop = stopped ?? (await timedStop(target));
  if (event?.kind === 'unread output') await target.setOutputRead(true);
  return {
    alone: calm.alone,
    others: seen,
    report,
    memory: { before, ...memory },
    readBytes,
    held,
    closedMs,
    idleMs,
    stop,
    isUnchanged,
    problems: target.problems(),
  };
}

type Others = ReturnType<typeof startOthers>;

/** Measures the other clients and the CPU without an attack. Ignores the first requests, which are slower. */
async function measureCalm(target: Target, others: Others, seconds: number) {
  const half = seconds / 2;
  await setTimeout(half * 1_000);
  others.take();
  const readBefore = await bytesRead(target);
  const cpuBefore = await cpuSeconds(target.pid);
  const began = performance.now();
  do await setTimeout(half * 1_000);
  while (others.count() < CALM_REQUESTS);
  const alone = others.take();
  const requests = Math.max(1, alone.requests.count + alone.live.count);
  const read = (await bytesRead(target)) - readBefore;
  return {
    alone,
    cpu: (await cpuSince(target, cpuBefore)) / ((performance.now() - began) / 1_000),
    fromStoreEach: Math.max(0, read - alone.sentBytes) / requests,
  };
}

function othersOf({ url, adminUrl, othersToken }: Target) {
  nextId += 1_000_000;
  return startOthers({ url, adminUrl, token: othersToken, firstId: nextId });
}

async function memoryOf(target: Target): Promise<{ peak: number; after: number }> {
  return { peak: await peakMemory(target), after: await residentMemory(target) };
}

async function timedStop(target: Target) {
  const began = performance.now();
  return { code: await target.stop(), ms: performance.now() - began };
}

/** Triggers the event of the attack. Resolves to the details of the stop if the event is a stop. */
async function cause(event: Event | undefined, target: Target, endOthers: () => Promise<void>) {
  if (event?.kind === 'suspend') {
    await setTimeout(event.afterMs);
    target.kill('SIGSTOP');
    await setTimeout(event.forMs);
    target.kill('SIGCONT');
  }
  if (event?.kind !== 'stop') return undefined;
  await setTimeout(event.afterMs);
  await endOthers();
  const memory = await memoryOf(target);
  return { ...(await timedStop(target)), memory };
}

/** Watches the open connections to the port. Calls `onAllClosed` when all have stayed closed for a while. */
function watchConnections(
  port: number,
  openBefore: number,
  isConnected: () => boolean,
  onAllClosed: () => void,
) {
  const began = performance.now();
  let held = 0;
  let closedMs: number | undefined;
  let isOver = false;
  /** So few connections are indistinguishable from those of other clients; only their own ends count. */
  const hadAll = (): boolean => held > NEW_OF_OTHERS && isConnected();

  async function look(): Promise<void> {
    while (!isOver) {
      const open = (await openConnections(port)) - openBefore;
      held = Math.max(held, open);
      if (open > NEW_OF_OTHERS) closedMs = undefined;
      else closedMs ??= performance.now() - began;
      if (hadAll() && closedMs !== undefined && performance.now() - began > closedMs + STEADY_MS)
        onAllClosed();
      await setTimeout(LOOK_EVERY_MS);
    }
  }
  const looking = look();

  return {
    end: async () => {
      isOver = true;
      await looking;
      return { held, closedMs: hadAll() ? closedMs : undefined };
    },
  };
}

/** Watches the target after the attack. Resolves to the time until its CPU use was back to normal, if it was. */
async function idleAfter(target: Target, calm: number, { watchSeconds = USUAL_WATCH_S }: Attack) {
  const began = performance.now();
  let idleMs: number | undefined;
  let wasBusy = false;
  while (performance.now() - began < watchSeconds * 1_000) {
    const cpu = await cpuSeconds(target.pid);
    const from = performance.now();
    await setTimeout(IDLE_LOOK_MS);
    const used = (await cpuSince(target, cpu)) / ((performance.now() - from) / 1_000);
    const isBusy = used > calm + BUSY;
    if (!isBusy) idleMs ??= from - began;
    // One look alone can be a garbage collection.
    else if (wasBusy) idleMs = undefined;
    wasBusy = isBusy;
  }
  return idleMs;
}

async function cpuSince({ pid }: Target, before: number | undefined): Promise<number> {
  return ((await cpuSeconds(pid)) ?? 0) - (before ?? 0);
}

/**
 * Returns the bytes that the main thread of a process has read so far, from sockets and files (proc_pid_io(5)). Other
 * threads read no clients, but much at a checkpoint.
 */
async function bytesRead({ pid }: Target): Promise<number> {
  const [, bytes] = /^rchar: (\d+)$/m.exec(await readFile(`/proc/${pid}/task/${pid}/io`, 'utf8')) ?? [];
  return Number(bytes ?? 0);
}

interface Attacker {
  readonly child: ChildProcess;
  readonly report: Promise<AttackReport>;
  /** True once each of its connections was made or has failed. */
  readonly isConnected: () => boolean;
  begin(): void;
  readonly stop: () => void;
}

/** Starts the attacking process. Resolves when it is ready. */
async function startAttacker(job: Job): Promise<Attacker> {
  const child = spawn(process.execPath, [ATTACKER], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => undefined);
  const lines = createInterface({ input: child.stdout });
  const first = once(lines, 'line');
  child.stdin.write(`${JSON.stringify(job)}\n`);
  await first;
  let isConnected = false;
  const reported = new Promise<AttackReport>((resolve) => {
    lines.on('line', (line) => {
      if (line === 'connected') isConnected = true;
      else resolve(JSON.parse(line));
    });
  });
  const report = Promise.race([
    reported,
    // After 'close' all its output was read; after 'exit' the report may still be in the pipe.
    once(child, 'close').then(([code]): never => {
      throw new Error(`the attacking process exited with ${code}`);
    }),
  ]);
  // It may reject before the caller awaits it.
  report.catch(() => undefined);
  return {
    child,
    report,
    isConnected: () => isConnected,
    begin: () => void child.stdin.write('begin\n'),
    stop: () => void child.stdin.end(),
  };
}
