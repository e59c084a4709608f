import { readdir, readFile } from 'node:fs/promises';
import { until } from '../patience.ts';

/** The account of programs that do not run as root, such as PostgreSQL: another one if the tests run as root. */
export const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

/** Clock ticks per second, a constant of Linux. CPU times in /proc are in clock ticks. */
const TICKS_PER_SECOND = 100;

/** Sends a signal to a process. Does nothing if the process has already ended. */
export function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // The process has already exited, and needs no signal.
  }
}

/** Kills processes with all their descendants. Resolves when all have ended. */
export async function killAll(roots: readonly number[]): Promise<void> {
  const killed = await descendants(roots);
  for (const pid of killed) send(pid, 'SIGKILL');
  await until(async () => !(await Promise.all(killed.map(isAlive))).includes(true));
}

/** Returns processes with all their descendants, parents first. */
export async function descendants(roots: readonly number[]): Promise<readonly number[]> {
  const children = new Map<number, number[]>();
  for (const entry of await readdir('/proc')) {
    const parent = /^\d+$/.test(entry) ? Number((await statOf(entry))[1]) : 0;
    if (parent > 0) children.set(parent, [...(children.get(parent) ?? []), Number(entry)]);
  }
  const found = new Set<number>(roots);
  for (const pid of found) for (const child of children.get(pid) ?? []) found.add(child);
  return [...found];
}

/**
 * Returns the seconds of CPU that a process and its descendants have used; undefined without /proc. Ended descendants
 * count too.
 */
export async function cpuSeconds(root: number): Promise<number | undefined> {
  if (process.platform !== 'linux') return undefined;
  const ticks = await Promise.all(
    (await descendants([root])).map(async (pid) => {
      const fields = await statOf(pid);
      // Adds utime, stime, cutime and cstime of proc_pid_stat(5). The last two are the times of ended
      // children.
      return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    }),
  );
  return ticks.reduce((sum, one) => sum + one, 0) / TICKS_PER_SECOND;
}

/**
 * True while a process runs. False for a zombie: a process that has ended, but its parent has not waited for
 * it.
 */
async function isAlive(pid: number): Promise<boolean> {
  const [state] = await statOf(pid);
  return state !== undefined && state !== 'Z' && state !== 'X';
}

/** Returns the fields of /proc/PID/stat after the name of the program; none when the process has ended. */
async function statOf(pid: number | string): Promise<readonly string[]> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat === '' ? [] : stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
