import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';

const TIMES = 200;

/** Returns the median time of an fsync of 4 KiB in a new file, in milliseconds. */
export function medianFsyncMs(file: string): number {
  const block = Buffer.alloc(4096);
  const fd = openSync(file, 'wx');
  const times = Array.from({ length: TIMES }, () => {
    writeSync(fd, block);
    const start = performance.now();
    fsyncSync(fd);
    return performance.now() - start;
  });
  closeSync(fd);
  return times.sort((a, b) => a - b)[TIMES / 2] ?? Number.NaN;
}
