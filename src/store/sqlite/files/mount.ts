// cspell:words statfs CIFS ramfs overlayfs
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { withoutLinks } from './store-path.ts';

/**
 * A file system on which a store is at risk. `network`: of another machine, where SQLite's locks and shared memory do not work
 * (https://sqlite.org/wal.html). `memory`: a restart of the machine empties it. `container`: removed with its container.
 */
export type RiskyMount = 'network' | 'memory' | 'container';

/** Types of file systems, as in linux/magic.h: NFS, SMB, CIFS, SMB 2, AFS and Ceph; tmpfs and ramfs; overlayfs. */
const TYPES = new Map<number, RiskyMount>([
  [0x6969, 'network'],
  [0x517b, 'network'],
  [0xff534d42, 'network'],
  [0xfe534d42, 'network'],
  [0x5346414f, 'network'],
  [0x00c36400, 'network'],
  [0x01021994, 'memory'],
  [0x858458f6, 'memory'],
  [0x794c7630, 'container'],
]);

/**
 * Returns the risk of the file system of a file. Returns undefined where it is not known: on other systems than Linux, for
 * FUSE, and for 9P, which gVisor shows for local folders too.
 */
export function riskyMountOf(file: string): RiskyMount | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    return TYPES.get(statfsSync(dirname(withoutLinks(file))).type);
  } catch {
    return undefined;
  }
}
