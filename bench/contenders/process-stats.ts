import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

/** Clock ticks per second in /proc, constant on Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)). */
const TICKS_A_SECOND = 100;

/** CPU seconds used so far, by process. */
export interface CpuSeconds {
  /** CPU seconds of all threads of the server. */
  readonly server: number;
  /** CPU seconds of the server's main thread, which runs the request handlers. */
  readonly serverMainThread: number;
  /** CPU seconds of all ended child processes of the benchmark: the load generators. */
  readonly generators: number;
  /** CPU seconds of the whole machine, including other processes. */
  readonly machine: number;
  /** CPU seconds that other virtual machines took from this one. */
  readonly stolen: number;
}

/** Reads the CPU seconds of a server, the load generators and the machine so far; undefined without /proc. */
export function readCpuSeconds(serverPid: number): CpuSeconds | undefined {
  const server = readThreads(serverPid);
  const mainThread = readThread(serverPid, String(serverPid));
  const generators = readEndedCpuSeconds();
  const machine = readMachine();
  if (server === undefined || mainThread === undefined || generators === undefined || machine === undefined)
    return undefined;
  return {
    server,
    serverMainThread: mainThread,
    generators,
    ...machine,
  };
}

/** Returns the CPU seconds of the running threads of a process. */
function readThreads(pid: number): number | undefined {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => sum + (readThread(pid, thread) ?? 0), 0);
  } catch {
    return undefined;
  }
}

/**
 * Returns the CPU seconds of a thread. The clock ticks in `stat` are too coarse for a run of one second, so
 * this reads `schedstat` (sched-stats.rst).
 */
function readThread(pid: number, thread: string): number | undefined {
  const nanoseconds = read(`/proc/${pid}/task/${thread}/schedstat`)?.split(' ', 1)[0];
  return nanoseconds === undefined ? undefined : Number(nanoseconds) / 1e9;
}

/** Returns the CPU seconds of a process and its children, including ended ones; undefined without /proc. */
export function readFamilyCpuSeconds(pid: number): number | undefined {
  const parent = readStat(`/proc/${pid}/stat`);
  if (parent === undefined) return undefined;
  const children = readdirSync('/proc')
    .flatMap((entry) => (/^\d+$/.test(entry) ? [readStat(`/proc/${entry}/stat`)] : []))
    .filter((stat) => stat?.[PARENT] === String(pid));
  return [parent, ...children].reduce((sum, stat = []) => sum + secondsWithChildren(stat), 0);
}

/** Returns the CPU seconds of all ended child processes of this process. */
export function readEndedCpuSeconds(): number | undefined {
  const own = readStat('/proc/self/stat');
  return own && secondsOfChildren(own);
}

/** Restarts the record of a process's peak resident memory, which `readPeakBytes` returns. */
export function resetPeakBytes(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
  } catch {
    // If the peak cannot be reset, it covers the whole life of the process.
  }
}

/** Returns the peak resident memory of a process; undefined without /proc. */
export function readPeakBytes(pid: number): number | undefined {
  return readStatus(pid, /^VmHWM:\s+(\d+) kB$/m);
}

/** Returns the resident memory of a process; undefined without /proc. */
export function readResidentBytes(pid: number): number | undefined {
  return readStatus(pid, /^VmRSS:\s+(\d+) kB$/m);
}

function readStatus(pid: number, line: RegExp): number | undefined {
  const kibibytes = line.exec(read(`/proc/${pid}/status`) ?? '')?.[1];
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
}

/**
 * Positions of fields in `stat` after the command name, from 0. The name itself may contain spaces
 * (proc_pid_stat(5), fields 14 to 17).
 */
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

function readMachine(): Pick<CpuSeconds, 'machine' | 'stolen'> | undefined {
  const [user, nice, system, , , irq, softirq, steal] =
    read('/proc/stat')?.split('\n')[0]?.match(/\d+/g) ?? [];
  if (steal === undefined) return undefined;
  const ticks = [user, nice, system, irq, softirq].reduce((sum, part) => sum + Number(part), 0);
  return { machine: ticks / TICKS_A_SECOND, stolen: Number(steal) / TICKS_A_SECOND };
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
