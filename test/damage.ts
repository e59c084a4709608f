import { open } from 'node:fs/promises';

/** Overwrites all of a file but its first page, which holds the schema. */
export async function damage(file: string): Promise<void> {
  const PAGE = 4_096;
  const handle = await open(file, 'r+');
  const { size } = await handle.stat();
  await handle.write(Buffer.alloc(size - PAGE, 0xff), 0, size - PAGE, PAGE);
  await handle.close();
}
