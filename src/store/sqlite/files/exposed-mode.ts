import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { withoutLinks } from './store-path.ts';

const OTHERS_READ_OR_WRITE = 0o006;
const OTHERS_ENTER = 0o001;

/**
 * Returns the mode of a file in octal if every user of the machine can read or change the file. Returns undefined otherwise, as
 * below a folder that others cannot enter, if a mode cannot be read, and on Windows, which has no modes.
 */
export function exposedModeOf(file: string): string | undefined {
  if (process.getuid === undefined) return undefined;
  try {
    const place = withoutLinks(file);
    const { mode } = statSync(place);
    const isExposed = (mode & OTHERS_READ_OR_WRITE) !== 0 && canOthersEnter(dirname(place));
    return isExposed ? (mode & 0o777).toString(8) : undefined;
  } catch {
    return undefined;
  }
}

/** True if every user can enter a folder: this one and all above it. Throws if a mode cannot be read. */
export function canOthersEnter(folder: string): boolean {
  if ((statSync(folder).mode & OTHERS_ENTER) === 0) return false;
  const above = dirname(folder);
  return above === folder || canOthersEnter(above);
}
