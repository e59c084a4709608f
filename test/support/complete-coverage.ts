// Loaded into each test file while coverage is measured. Its programs and threads write to a separate folder, from which it
// moves complete files: Node reports no coverage at all if a process was killed while it wrote its file.
import { globSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { isMainThread } from 'node:worker_threads';

/** The option of Node that loads this module. */
export const COMPLETE_COVERAGE = `--import=${import.meta.url}`;

const { NODE_V8_COVERAGE: folder, NODE_TEST_CONTEXT: inTestFile } = process.env;
if (folder !== undefined && inTestFile !== undefined && isMainThread) collectComplete(folder);

function collectComplete(folder: string): void {
  const own = join(folder, String(process.pid));
  mkdirSync(own, { recursive: true });
  process.env.NODE_V8_COVERAGE = own;
  // Only test files load this module: the programs that they start may have another Node.
  process.env.NODE_OPTIONS = process.env.NODE_OPTIONS?.replace(COMPLETE_COVERAGE, '') ?? '';
  process.once('exit', () => {
    for (const file of globSync('*.json', { cwd: own }))
      if (isComplete(join(own, file))) renameSync(join(own, file), join(folder, file));
  });
}

function isComplete(file: string): boolean {
  try {
    JSON.parse(readFileSync(file, 'utf8'));
    return true;
  } catch {
    return false;
  }
}
