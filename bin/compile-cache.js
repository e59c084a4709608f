import { chmodSync, existsSync, mkdirSync, readdirSync, realpathSync, statSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';

/**
 * Creates and returns a folder for compiled code in the home folder. Undefined where other users could write code to
 * it or replace it, and where the user has no home, such as a numeric user in a container.
 */
export function createPrivateCache() {
  try {
    if (!isAbsolute(homedir())) return undefined;
    // Without symbolic links, which other users could change after the checks.
    let folder = realpathSync(homedir());
    for (const name of ['.cache', 'plant-store']) {
      if (!isProtected(folder)) return undefined;
      const path = join(folder, name);
      // The mode matters where a default ACL replaces the umask.
      if (!existsSync(path)) mkdirSync(path, { mode: 0o700 });
      folder = realpathSync(path);
    }
    const entries = readdirSync(folder).map((name) => join(folder, name));
    return isProtected(folder) && [folder, ...entries].every(isPrivate) ? folder : undefined;
  } catch {
    return undefined;
  }
}

/** True if only this user and root can replace a folder, or a folder above it, or this user's entries in them. */
function isProtected(folder) {
  if (process.getuid === undefined) return true;
  const above = dirname(folder);
  return isUnshared(folder) && (above === folder || isProtected(above));
}

/** True if only this user and root can replace this user's entries in a folder. */
function isUnshared(folder) {
  const { mode, uid } = statSync(folder);
  // In a sticky folder, such as /tmp, other users cannot replace the entries of this user.
  return ((mode & 0o022) === 0 || (mode & 0o1000) !== 0) && [process.getuid(), 0].includes(uid);
}

function isPrivate(path) {
  if (process.getuid === undefined) return true;
  const { mode, uid } = statSync(path);
  return uid === process.getuid() && (mode & 0o022) === 0;
}

/**
 * Makes the folder of compiled code, and the folder in it for this version of Node, writable by this user only: Node
 * creates them before the program can set the umask. Warns if other users can change them nonetheless.
 */
export function protectCompileCache() {
  const compiled = module.getCompileCacheDir();
  if (compiled === undefined || process.getuid === undefined) return;
  const folder = dirname(compiled);
  try {
    // Another folder, such as the home folder, keeps its mode.
    if (readdirSync(folder).every((name) => /^v\d/.test(name))) makePrivate(folder);
    makePrivate(compiled);
    if (isUnshared(folder) && isUnshared(compiled)) return;
  } catch {
    // Another user has removed or hidden them.
  }
  process.stderr.write(
    'plant-store: other users can change the code in the folder of NODE_COMPILE_CACHE; ' +
      'set it to a new folder with mode 700\n',
  );
}

function makePrivate(folder) {
  if (!isUnshared(folder) && statSync(folder).uid === process.getuid()) chmodSync(folder, 0o700);
}
