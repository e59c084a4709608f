import { execFile } from 'node:child_process';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const KIBIBYTE = 1_024;
export const MEBIBYTE = 1_024 * KIBIBYTE;

/** A process to look at. */
interface Process {
  readonly pid: number;
}

/** Resident memory of a process, in bytes. */
export async function residentMemory({ pid }: Process): Promise<number> {
  if (process.platform === 'linux') return readStatus(pid, 'VmRSS');
  return Number(await output('ps', ['-o', 'rss=', '-p', String(pid)])) * KIBIBYTE;
}

/** The most memory a process had resident since `forgetPeak`, in bytes; where only Linux tells, what it has now. */
export async function peakMemory(one: Process): Promise<number> {
  return process.platform === 'linux' ? readStatus(one.pid, 'VmHWM') : residentMemory(one);
}

/** Begins the measure of `peakMemory` anew (proc_pid_clear_refs(5)). */
export async function forgetPeak({ pid }: Process): Promise<void> {
  if (process.platform === 'linux') await writeFile(`/proc/${pid}/clear_refs`, '5');
}

/** How many file descriptors a process has open, sockets included. */
export async function openFiles({ pid }: Process): Promise<number> {
  if (process.platform === 'linux') return (await readdir(`/proc/${pid}/fd`)).length;
  return (await output('lsof', ['-p', String(pid)])).trim().split('\n').length - 1;
}

const LISTENING = '0A';

/** How many TCP connections to a port of this machine some process has open (proc_pid_net(5)); on Linux alone. */
export async function openConnections(port: number): Promise<number> {
  const [, ...lines] = (await readFile('/proc/net/tcp', 'utf8')).trimEnd().split('\n');
  const end = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return lines.filter((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    // What a process has closed has no inode, though the kernel may still send the rest of it.
    return local.endsWith(end) && state !== LISTENING && inode !== '0';
  }).length;
}

/** Bytes as mebibytes, for people. */
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
