import { runProgram } from './program.ts';
import { keepNextTickFast } from './v8-tuning.ts';

/** Runs the command in the arguments of this process and sets the exit code. */
export async function main(): Promise<void> {
  keepNextTickFast();
  process.exitCode = await runProgram(process.argv.slice(2), {
    env: process.env,
    // The standard streams are getters, since Node opens a stream when its property is first read.
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return process.stdout;
    },
    get stderr() {
      return process.stderr;
    },
    get cwd() {
      return process.cwd();
    },
    parentPid: () => process.ppid,
    signals: process,
    end: (how) => (typeof how === 'number' ? process.exit(how) : process.kill(process.pid, how)),
  });
}
