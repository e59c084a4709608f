/** A table of text cells. The first row is the header; the first column is left-aligned. */
export type Table = readonly (readonly string[])[];

const MEBIBYTE = 1024 * 1024;

export function renderTable(rows: Table): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  const lines = rows.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}

/** Formats a number, or undefined as a dash. */
export function show(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? '–' : format(value);
}

const integers = new Intl.NumberFormat('en', { maximumFractionDigits: 0, signDisplay: 'negative' });

/** Formats a number rounded to an integer, without the sign of a zero. */
export const whole = (value: number): string => integers.format(value);
export const decimals =
  (digits: number) =>
  (value: number): string =>
    value.toFixed(digits);
export const mebibytes = (bytes: number): string => (bytes / MEBIBYTE).toFixed(0);
