// cspell:words statfs CIFS
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { withoutLinks } from './store-path.ts';

/** Types of file systems on other machines, as in linux/magic.h: NFS, SMB, CIFS, SMB 2, AFS and Ceph. */
const NETWORK_TYPES = new Set([0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x5346414f, 0x00c36400]);

/**
 * Returns true if a file is on a file system of another machine, where SQLite's locks and shared memory do not work
 * (https://sqlite.org/wal.html). Returns false where that is not known: on other systems than Linux, for FUSE, and
 * for 9P, which gVisor shows for local folders too.
 */
export function isOnNetwork(file: string): boolean {
  if (process.platform !== 'linux') return false;
  try {
    return NETWORK_TYPES.has(statfsSync(dirname(withoutLinks(file))).type);
  } catch {
    return false;
  }
}
