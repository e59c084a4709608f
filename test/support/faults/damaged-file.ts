import { open } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';

const PAGE = 4_096;

/** Overwrites all pages of a database file except the first, which holds the schema. */
export async function damage(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(size - PAGE, 0xff), 0, size - PAGE, PAGE);
  await handle.close();
}

/** Overwrites one page in the middle of a database file. */
export async function damagePage(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(PAGE, 0x5a), 0, PAGE, Math.floor(size / PAGE / 2) * PAGE);
  await handle.close();
}

/** Changes the number of free pages in the header of a database file to 9 (https://sqlite.org/fileformat2.html, §1.3.9). */
export async function changeFreePages(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  await handle.write(Buffer.of(0, 0, 0, 9), 0, 4, 36);
  await handle.close();
}

/**
 * Lowers the number of rows in the last page of a table that has several pages, so that no read returns the last rows.
 * cspell:ignore rootpage
 */
export async function hideRows(file: string, table: string): Promise<void> {
  const db = new DatabaseSync(file);
  const row = db.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(table);
  db.close();
  const handle = await open(file, 'r+');
  const page = Buffer.alloc(PAGE);
  await handle.read(page, 0, PAGE, (Number(row?.rootpage) - 1) * PAGE);
  // The right-most child of an inner page, and the number of cells of a page (https://sqlite.org/fileformat2.html, §1.6).
  const last = (page.readUInt32BE(8) - 1) * PAGE;
  await handle.read(page, 0, PAGE, last);
  page.writeUInt16BE(page.readUInt16BE(3) - 5, 3);
  await handle.write(page, 0, PAGE, last);
  await handle.close();
}
