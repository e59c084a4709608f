import { NewPlant } from '../plant.ts';
import { compileCheck } from '../validation.ts';

/** What stands at a line of a file, the first being 1: a plant, or the reason why there is none. */
export type Entry =
  | { readonly line: number; readonly plant: NewPlant }
  | { readonly line: number; readonly reason: string };

/** A way to write plants to a file and to read them from it, both byte for byte. */
export interface Format {
  /** The plants of a file, a bad line costing no other. Rejects with FileInvalid when nothing can be read. */
  read(chunks: AsyncIterable<Buffer>): AsyncIterable<readonly Entry[]>;
  /** What stands before the first plant. */
  readonly header: string;
  write(plants: readonly NewPlant[]): string;
}

/** A file that is not what it should be as a whole. */
export class FileInvalid extends Error {
  override readonly name = 'FileInvalid';
}

/** Longer lines are refused: more than any body that the service takes, so that memory stays bounded. */
export const MAX_LINE_BYTES = 32 * 1024 * 1024;

const BYTE_ORDER_MARK = Buffer.from('\ufeff');
const NEWLINE = 0x0a;

const check = compileCheck(NewPlant);

/** The entry of a value that should be a plant, by the rules and in the words of createPlant. */
export function toEntry(line: number, value: unknown): Entry {
  const checked = check(value);
  if ('value' in checked) return { line, plant: checked.value };
  const { field, demand } = checked.violation;
  return { line, reason: `${field === '' ? 'the line' : `the field \`${field}\``} ${demand}` };
}

/** The bytes of a file without the mark that some programs put before UTF-8 (RFC 3629 §6). */
export async function* withoutByteOrderMark(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    if (start === undefined) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    if (start.length < BYTE_ORDER_MARK.length) continue;
    yield start.subarray(start.indexOf(BYTE_ORDER_MARK) === 0 ? BYTE_ORDER_MARK.length : 0);
    start = undefined;
  }
  if (start !== undefined) yield start;
}

/** Counts the lines of a file that passes in chunks. */
export function countLines() {
  let chunks: Buffer[] = [];
  let start = 0;
  let offset = 0;
  let line = 1;

  return {
    add(chunk: Buffer): void {
      chunks.push(chunk);
    },
    /** The line of a byte, given its offset, which must not be less than the one asked for before. */
    upTo(wanted: number): number {
      for (let chunk = chunks[0]; chunk !== undefined && offset < wanted; chunk = chunks[0]) {
        const at = chunk.indexOf(NEWLINE, offset - start);
        const next = at === -1 ? start + chunk.length : start + at + 1;
        if (next > wanted) break;
        offset = next;
        if (at !== -1) line += 1;
        if (offset < start + chunk.length) continue;
        start = offset;
        chunks = chunks.slice(1);
      }
      return line;
    },
  };
}
