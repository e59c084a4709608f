// Loaded into each test file and program while coverage is measured. The cache of compiled code is off then, and each thread
// would remove the types of its modules again, which takes as long as the rest of its start. JavaScript, for the same reason.
import { existsSync, readFileSync } from 'node:fs';
import module from 'node:module';
import { join } from 'node:path';

/** The option of Node that loads this module. The variable STRIPPED_TYPES names the folder with the modules without types. */
export const LOAD_STRIPPED = `--import=${import.meta.url}`;

const ROOT = new URL('../..', import.meta.url).href;
const { STRIPPED_TYPES: folder } = process.env;

// Earlier versions of Node, which a test may start, lack `registerHooks`.
if (folder !== undefined)
  module.registerHooks?.({
    load: (url, context, next) => {
      const file = url.startsWith(ROOT) ? join(folder, url.slice(ROOT.length)) : undefined;
      return file?.endsWith('.ts') && existsSync(file)
        ? { format: 'module', source: readFileSync(file), shortCircuit: true }
        : next(url, context);
    },
  });
