import { readFileSync, writeFileSync } from 'node:fs';

/** The unit of CPU times in /proc, the same on all of Linux (proc_pid_stat(5), sysconf(_SC_CLK_TCK)). */
const TICKS_A_SECOND = 100;

/** CPU seconds that a process has used so far, all its threads together; undefined where there is no /proc. */
export function readCpuSeconds(pid: number): number | undefined {
  const fields = readStat(`/proc/${pid}/stat`);
  return fields && ticksOf(fields, 'utime') + ticksOf(fields, 'stime');
}

/** CPU seconds of the main thread of a process, where JavaScript runs. */
export function readMainThreadCpuSeconds(pid: number): number | undefined {
  const fields = readStat(`/proc/${pid}/task/${pid}/stat`);
  return fields && ticksOf(fields, 'utime') + ticksOf(fields, 'stime');
}

/** CPU seconds of all processes that this one started and that have ended. */
export function readEndedChildrenCpuSeconds(): number | undefined {
  const fields = readStat('/proc/self/stat');
  return fields && ticksOf(fields, 'cutime') + ticksOf(fields, 'cstime');
}

/** Forgets the peak of the resident memory of a process, so that `readPeakBytes` tells that of the time since. */
export function resetPeakBytes(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
  } catch {
    // Then the peak is that of the whole life of the process.
  }
}

/** The most memory a process had resident. */
export function readPeakBytes(pid: number): number | undefined {
  const kibibytes = /^VmHWM:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/status`) ?? '')?.[1];
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
}

/** Positions behind the name of the command, which can hold spaces (proc_pid_stat(5), fields 14 to 17). */
const positions = { utime: 11, stime: 12, cutime: 13, cstime: 14 };

function readStat(file: string): readonly string[] | undefined {
  const text = read(file);
  return text?.slice(text.lastIndexOf(')') + 2).split(' ');
}

function ticksOf(fields: readonly string[], field: keyof typeof positions): number {
  return Number(fields[positions[field]]) / TICKS_A_SECOND;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
