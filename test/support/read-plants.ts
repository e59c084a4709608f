import type { Entry, Format } from '../../src/formats/format.ts';

/** The bytes in chunks of this size. */
export async function* inChunks(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** The entries of a file that is read in chunks of this many bytes. */
export async function read(format: Format, content: string | Buffer, chunk = 64 * 1024): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const some of format.read(inChunks(Buffer.from(content), chunk))) entries.push(...some);
  return entries;
}

/** The entries as texts: the name of a plant, or the reason. */
export async function outline(format: Format, content: string | Buffer, chunk?: number): Promise<string[]> {
  const entries = await read(format, content, chunk);
  return entries.map((entry) => `${entry.line}: ${'plant' in entry ? entry.plant.name : entry.reason}`);
}
