import { execFile, execFileSync } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const KIBIBYTE = 1_024;
export const MEBIBYTE = 1_024 * KIBIBYTE;

interface Process {
  readonly pid: number;
}

/** Returns the bytes of the heap of this process that are in use after a garbage collection. */
export function usedHeap(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}

/** Returns the resident memory of a process, in bytes. */
export async function residentMemory({ pid }: Process): Promise<number> {
  if (process.platform === 'linux') return readStatus(pid, 'VmRSS');
  return Number(await output('ps', ['-o', 'rss=', '-p', String(pid)])) * KIBIBYTE;
}

/**
 * Returns the peak resident memory since `resetPeakMemory`, in bytes. Without /proc, returns the current
 * memory.
 */
export async function peakMemory(one: Process): Promise<number> {
  return process.platform === 'linux' ? readStatus(one.pid, 'VmHWM') : residentMemory(one);
}

/** Resets the peak resident memory that `peakMemory` reports (proc_pid_clear_refs(5)). */
export async function resetPeakMemory({ pid }: Process): Promise<void> {
  if (process.platform === 'linux') await writeFile(`/proc/${pid}/clear_refs`, '5');
}

/** Returns the number of open file descriptors of a process, including sockets. */
export async function openFiles({ pid }: Process): Promise<number> {
  if (process.platform === 'linux') return (await readdir(`/proc/${pid}/fd`)).length;
  return (await output('lsof', ['-p', String(pid)])).trim().split('\n').length - 1;
}

/** Files that a test or a service has open in addition to its connections. */
const OTHER_FILES = 100;

/**
 * Throws an error that names the remedy if a process may not open `connections` in addition to its usual files. Node has
 * already raised the soft limit to the hard one, also for the processes that it starts.
 */
export function needOpenFiles(connections: number): void {
  const limit = execFileSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim();
  const needed = connections + OTHER_FILES;
  if (limit === 'unlimited' || Number(limit) >= needed) return;
  throw new Error(
    `needs ${needed} open files, but the limit is ${limit}; raise the hard limit as root, for example with nofile in /etc/security/limits.conf`,
  );
}

const LISTENING = '0A';
const KEEP_ALIVE_TIMER = '02';
/** The unit of times in /proc (USER_HZ). */
const MS_PER_CLOCK_TICK = 10;

/** Counts the open TCP connections to a local port (proc_pid_net(5)). Linux only. */
export async function openConnections(port: number): Promise<number> {
  const [, ...lines] = (await readFile('/proc/net/tcp', 'utf8')).trimEnd().split('\n');
  const end = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return lines.filter((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    // Skips closed sockets, which have no inode, although the kernel may still be sending their data.
    return local.endsWith(end) && state !== LISTENING && inode !== '0';
  }).length;
}

/**
 * Returns the milliseconds until the kernel asks the other end of the TCP connection between two ports whether it is still
 * there (proc_pid_net(5)). Undefined if it never asks, or while it waits for an acknowledgement. Linux only.
 */
export async function keepAliveDueMs(localPort: number, remotePort: number): Promise<number | undefined> {
  const lines = (await readFile('/proc/net/tcp', 'utf8')).split('\n');
  const endOf = (port: number): string => `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const fields = lines
    .map((line) => line.trim().split(/\s+/))
    .find(([, local, remote]) => local?.endsWith(endOf(localPort)) && remote?.endsWith(endOf(remotePort)));
  const [timer, due = ''] = fields?.[5]?.split(':') ?? [];
  return timer === KEEP_ALIVE_TIMER ? Number.parseInt(due, 16) * MS_PER_CLOCK_TICK : undefined;
}

export function inMebibytes(bytes: number): string {
  return `${(bytes / MEBIBYTE).toFixed(1)} MiB`;
}

async function readStatus(pid: number, field: string): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status);
  if (match === null) throw new Error(`/proc/${pid}/status has no ${field}`);
  return Number(match[1]) * KIBIBYTE;
}

async function output(command: string, args: readonly string[]): Promise<string> {
  return (await promisify(execFile)(command, args)).stdout;
}
