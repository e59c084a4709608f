import { NewPlant, type NullablePlant, plantFields, renderPlant } from '../plant.ts';
import { OperatorError } from '../thrown-errors.ts';
import { compileCheck } from '../validation.ts';

/** Result of one line: a plant, or the reason why the line is invalid. Line numbers start at 1. */
export type Entry =
  | { readonly line: number; readonly plant: NewPlant }
  | { readonly line: number; readonly reason: string };

export interface Format {
  /**
   * Reads plants. An invalid line does not affect other lines. Rejects with FileInvalid if no further line
   * can be read. Calls `warn` if it ignores columns or fields: one may be a misspelled optional one, whose texts are lost.
   */
  read(chunks: AsyncIterable<Buffer>, warn?: (text: string) => void): AsyncIterable<readonly Entry[]>;
  /** Text before the first plant of a file, such as the header line of CSV. */
  readonly header: string;
  write(plants: readonly (NullablePlant & { readonly id: bigint })[]): string;
}

/** The fields of a plant, in the order of CSV. */
export const FIELDS = ['id', ...plantFields] as const;

/** Max ignored columns or fields to name, and characters of each. */
export const IGNORED_SHOWN = 5;
const NAME_CHARACTERS_SHOWN = 40;

/** Error for an invalid file, after which no further line can be read. */
export class FileInvalid extends OperatorError {
  override readonly name = 'FileInvalid';
}

/**
 * Max bytes of a line, to bound memory. The request body limit of the API is always lower (`bodyLimit`).
 * Every plant created through the API therefore fits in one line.
 */
export const MAX_LINE_BYTES = 32 * 1024 * 1024;

const BYTE_ORDER_MARK = Buffer.from('\ufeff');
/**
 * Beginning of a UTF-16 text: a byte order mark, or an ASCII character with a zero byte before or after it.
 */
const BEGINS_UTF_16 = /^(?:\xff\xfe|\xfe\xff|\0[^\0]|[^\0]\0)/;
/** First bytes of files made by gzip, zstd, xz, bzip2 and zip. */
const COMPRESSED = ['\x1f\x8b', '\x28\xb5\x2f', '\xfd7z', 'BZh', 'PK\x03'];
export const NEWLINE = 0x0a;

const check = compileCheck(NewPlant);

/** Returns the beginning of a name of a column or field, in backticks. */
export function quoteName(name: string): string {
  // A character has up to two UTF-16 units.
  const characters = [...name.slice(0, 2 * NAME_CHARACTERS_SHOWN + 2)];
  const isLong = characters.length > NAME_CHARACTERS_SHOWN;
  return `\`${characters.slice(0, NAME_CHARACTERS_SHOWN).join('')}${isLong ? '…' : ''}\``;
}

/** Max bytes of a character in JSON, as in `\u0001`. */
const JSON_BYTES = 6;

/**
 * Validates the parsed value of a line. Reasons for invalid lines are worded as in the errors of createPlant.
 * `characters` is not less than those of the plant.
 */
export function toEntry(line: number, value: unknown, characters: number): Entry {
  const checked = check(value);
  if ('violation' in checked) {
    const { field, rule } = checked.violation;
    return { line, reason: `${field === '' ? 'the line' : `the field \`${field}\``} ${rule}` };
  }
  const plant = checked.value;
  // An export must be a valid import. Measures only what may be too long, since that takes time.
  return characters > MAX_LINE_BYTES / (JSON_BYTES + 1) &&
    Buffer.byteLength(renderLine(plant)) > MAX_LINE_BYTES
    ? { line, reason: `the plant is longer than ${MAX_LINE_BYTES} bytes as a line of NDJSON` }
    : { line, plant };
}

/**
 * Renders a plant as a line of NDJSON, without its end. Renders the id separately, since `JSON.stringify` cannot render
 * a bigint.
 */
export function renderLine(plant: NullablePlant & { readonly id: bigint }): string {
  return `{"id":${plant.id},${renderPlant(plant).slice(1)}`;
}

/**
 * Removes the byte order mark that some programs write before UTF-8 (RFC 3629 §6). Throws FileInvalid if the
 * file is compressed or in UTF-16.
 */
export async function* withoutByteOrderMark(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    if (start === undefined) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    if (start.length < BYTE_ORDER_MARK.length) continue;
    const beginning = start.toString('latin1', 0, BYTE_ORDER_MARK.length);
    if (BEGINS_UTF_16.test(beginning)) throw new FileInvalid('the file is UTF-16; save it as UTF-8');
    if (COMPRESSED.some((bytes) => beginning.startsWith(bytes)))
      throw new FileInvalid('the file is compressed; decompress it first');
    yield start.subarray(start.indexOf(BYTE_ORDER_MARK) === 0 ? BYTE_ORDER_MARK.length : 0);
    start = undefined;
  }
  if (start !== undefined) yield start;
}
