/** A table of a page that repeats facts of the code. In the page, a comment with its name precedes it. */
export interface FactTable {
  /** The page, relative to the repository. */
  readonly file: string;
  readonly name: string;
  readonly head: readonly string[];
  /** The cells from the code. The first `key` of them identify a row. */
  readonly rows: readonly (readonly string[])[];
  readonly key: number;
}

/**
 * Renders a table again in the text of its page. Cells to the right of those from the code are written by hand; they
 * stay with their row, and are empty in a new one. Throws if the page lacks the comment.
 */
export function renderTable(page: string, { name, head, rows, key }: FactTable): string {
  const comment = `<!-- table of ${name} -->\n\n`;
  const [before = '', after, ...others] = page.split(comment);
  if (after === undefined || others.length > 0)
    throw new Error(`a page needs one line <!-- table of ${name} -->, and an empty line below it`);
  const [old = ''] = /^(?:\|.*\n)*/.exec(after) ?? [];
  const keyOf = (cells: readonly string[]): string => cells.slice(0, key).join('|');
  const kept = new Map(old.split('\n').map((line) => [keyOf(cellsOf(line)), cellsOf(line)]));
  const complete = rows.map((row) =>
    head.map((_, column) => row[column] ?? kept.get(keyOf(row))?.[column] ?? ''),
  );
  const table = [head, head.map(() => '---'), ...complete].map(lineOf).join('');
  return before + comment + table + after.slice(old.length);
}

/** Returns the cells of a line of a table. */
export function cellsOf(line: string): readonly string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

function lineOf(cells: readonly string[]): string {
  return `|${cells.map((cell) => (cell === '' ? ' ' : ` ${cell} `)).join('|')}|\n`;
}
