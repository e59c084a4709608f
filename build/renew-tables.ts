import { readFile, writeFile } from 'node:fs/promises';
import { factTables } from './fact-tables.ts';
import { renderTable } from './markdown-table.ts';

/** Writes the facts of the code into the tables of the pages. */

for (const table of await factTables()) {
  const file = new URL(`../${table.file}`, import.meta.url);
  await writeFile(file, renderTable(await readFile(file, 'utf8'), table));
}
