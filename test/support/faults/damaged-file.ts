import { open } from 'node:fs/promises';

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
