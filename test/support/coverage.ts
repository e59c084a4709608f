import { dirname, relative } from 'node:path';
import type { EventData } from 'node:test';

/** Formats the coverage of lines and branches, for each folder and in total. */
export function describeCoverage({ summary }: EventData.TestCoverage): readonly string[] {
  const folders = Map.groupBy(summary.files, ({ path }) => dirname(relative(process.cwd(), path)));
  const rows = [...folders].sort(([a], [b]) => a.localeCompare(b));
  return [
    row('coverage', 'lines', 'branches'),
    ...rows.map(([folder, files]) => {
      const sum = (count: (file: (typeof files)[number]) => number): number =>
        files.reduce((total, file) => total + count(file), 0);
      return row(
        folder,
        percent(sum((file) => file.coveredLineCount) / sum((file) => file.totalLineCount)),
        percent(sum((file) => file.coveredBranchCount) / sum((file) => file.totalBranchCount)),
      );
    }),
    row(
      'all',
      percent(summary.totals.coveredLinePercent / 100),
      percent(summary.totals.coveredBranchPercent / 100),
    ),
  ];
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function row(title: string, lines: string, branches: string): string {
  return `${title.padEnd(30)}${lines.padStart(10)}${branches.padStart(10)}`;
}
