import { dirname, relative } from 'node:path';
import type { EventData } from 'node:test';

/** Formats the coverage of lines and branches of each folder, with the folders in it. */
export function describeCoverage({ summary }: EventData.TestCoverage): readonly string[] {
  const files = summary.files.map((file) => ({
    ...file,
    folders: foldersOf(relative(process.cwd(), file.path)),
  }));
  const folders = [...new Set(files.flatMap((file) => file.folders))].sort();
  return [
    row('coverage', 'lines', 'branches'),
    ...folders.map((folder) => {
      const inside = files.filter((file) => file.folders.includes(folder));
      const sum = (count: (file: (typeof files)[number]) => number): number =>
        inside.reduce((total, file) => total + count(file), 0);
      return row(
        folder,
        percent(sum((file) => file.coveredLineCount) / sum((file) => file.totalLineCount)),
        percent(sum((file) => file.coveredBranchCount) / sum((file) => file.totalBranchCount)),
      );
    }),
  ];
}

/** All folders that a relative path is in. */
function foldersOf(path: string): readonly string[] {
  const folder = dirname(path);
  return folder === '.' ? [] : [folder, ...foldersOf(folder)];
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2)} %`;
}

function row(title: string, lines: string, branches: string): string {
  return `${title.padEnd(30)}${lines.padStart(10)}${branches.padStart(10)}`;
}
