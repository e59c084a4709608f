import { readdirSync, readFileSync } from 'node:fs';

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

/** Returns the CPU seconds of all ended child processes of this process. */
export function readEndedCpuSeconds(): number | undefined {
  const stat = read('/proc/self/stat');
  if (stat === undefined) return undefined;
  // cutime and cstime of proc_pid_stat(5), counted after the command name, which may contain spaces.
  const [user, system] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(13, 15);
  return (Number(user) + Number(system)) / TICKS_A_SECOND;
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
