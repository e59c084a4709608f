import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

/** The unit of CPU times in /proc, the same on all of Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)). */
const TICKS_A_SECOND = 100;

/** CPU seconds used so far. */
export interface CpuSeconds {
  /** All threads of the server. */
  readonly server: number;
  /** Its main thread, where JavaScript answers requests. */
  readonly serverMainThread: number;
  /** All processes that this one started and that have ended: the generators. */
  readonly generators: number;
  /** The whole machine, whoever used them. */
  readonly machine: number;
}

/** What the server with a pid, the generators and the machine have used so far; undefined where there is no /proc. */
export function readCpuSeconds(serverPid: number): CpuSeconds | undefined {
  const server = readStat(`/proc/${serverPid}/stat`);
  const mainThread = readStat(`/proc/${serverPid}/task/${serverPid}/stat`);
  const generators = readEndedCpuSeconds();
  const machine = readMachine();
  if (server === undefined || mainThread === undefined || generators === undefined || machine === undefined)
    return undefined;
  return {
    server: secondsOf(server, 'utime') + secondsOf(server, 'stime'),
    serverMainThread: secondsOf(mainThread, 'utime') + secondsOf(mainThread, 'stime'),
    generators,
    machine,
  };
}

/** CPU seconds that a process and its children have used so far, those that ended too; undefined where there is no /proc. */
export function readFamilyCpuSeconds(pid: number): number | undefined {
  const parent = readStat(`/proc/${pid}/stat`);
  if (parent === undefined) return undefined;
  const children = readdirSync('/proc')
    .flatMap((entry) => (/^\d+$/.test(entry) ? [readStat(`/proc/${entry}/stat`)] : []))
    .filter((stat) => stat?.[PARENT] === String(pid));
  return [parent, ...children].reduce((sum, stat = []) => sum + secondsWithChildren(stat), 0);
}

/** CPU seconds of all processes that this one started and that have ended. */
export function readEndedCpuSeconds(): number | undefined {
  const own = readStat('/proc/self/stat');
  return own && secondsOfChildren(own);
}

/** Forgets the peak of the resident memory of a process, so that `readPeakBytes` tells that of the time since. */
export function resetPeakBytes(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
  } catch {
    // Then the peak is that of the whole life of the process.
  }
}

/** The most memory a process had resident; undefined where there is no /proc. */
export function readPeakBytes(pid: number): number | undefined {
  return readStatus(pid, /^VmHWM:\s+(\d+) kB$/m);
}

/** The memory that a process has resident; undefined where there is no /proc. */
export function readResidentBytes(pid: number): number | undefined {
  return readStatus(pid, /^VmRSS:\s+(\d+) kB$/m);
}

function readStatus(pid: number, line: RegExp): number | undefined {
  const kibibytes = line.exec(read(`/proc/${pid}/status`) ?? '')?.[1];
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
}

/** Positions behind the name of the command, which can hold spaces (proc_pid_stat(5), fields 14 to 17). */
const positions = { utime: 11, stime: 12, cutime: 13, cstime: 14 };
const PARENT = 1;

function readStat(file: string): readonly string[] | undefined {
  const text = read(file);
  return text?.slice(text.lastIndexOf(')') + 2).split(' ');
}

function secondsOf(fields: readonly string[], field: keyof typeof positions): number {
  return Number(fields[positions[field]]) / TICKS_A_SECOND;
}

function secondsWithChildren(fields: readonly string[]): number {
  return secondsOf(fields, 'utime') + secondsOf(fields, 'stime') + secondsOfChildren(fields);
}

function secondsOfChildren(fields: readonly string[]): number {
  return secondsOf(fields, 'cutime') + secondsOf(fields, 'cstime');
}

function readMachine(): number | undefined {
  const [user, nice, system, , , irq, softirq] = read('/proc/stat')?.split('\n')[0]?.match(/\d+/g) ?? [];
  if (softirq === undefined) return undefined;
  return [user, nice, system, irq, softirq].reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS_A_SECOND;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
