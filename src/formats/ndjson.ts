import { JsonInvalid, parseJson } from '../exact-json.ts';
import { NewPlant, newPlantFields } from '../plant.ts';
import { numberFieldsOf } from '../validation.ts';
import {
  type Entry,
  FIELDS,
  FileInvalid,
  type Format,
  IGNORED_SHOWN,
  MAX_LINE_BYTES,
  NEWLINE,
  quoteName,
  renderLine,
  toEntry,
  withoutByteOrderMark,
} from './format.ts';

/**
 * Max bytes of a skipped line. A line longer than MAX_LINE_BYTES is invalid and skipped. If a line exceeds
 * MAX_SKIPPED_BYTES, the import fails, since input such as `/dev/zero` has no end of line.
 */
export const MAX_SKIPPED_BYTES = 8 * MAX_LINE_BYTES;

const NUMBER_FIELDS = numberFieldsOf(NewPlant);

const SPACE = 0x20;
const TAB = 0x09;
const RETURN = 0x0d;
const ARRAY_START = 0x5b;

/**
 * NDJSON: one plant per line, as JSON (https://github.com/ndjson/ndjson-spec). Skips empty lines. Unknown fields are ignored;
 * a warning names each of the first ones. Rejects an input that begins with `[`.
 */
export const ndjson: Format = { read, header: '', write };

function write(plants: Parameters<Format['write']>[0]): string {
  return plants.map((plant) => `${renderLine(plant)}\n`).join('');
}

async function* read(
  chunks: AsyncIterable<Buffer>,
  warn: (text: string) => void = () => undefined,
): AsyncGenerator<readonly Entry[]> {
  const ignored = new Set<string>();
  let begun: readonly Buffer[] = [];
  /** Bytes of the current line in earlier chunks. With more than MAX_LINE_BYTES, it was reported, and its rest is skipped. */
  let begunBytes = 0;
  let line = 1;
  /** First byte of the input that is not white space. */
  let first: number | undefined;

  function endLine(rest: Buffer): readonly Entry[] {
    const entries = begunBytes > MAX_LINE_BYTES ? [] : readLine(rest);
    begun = [];
    begunBytes = 0;
    line += 1;
    return entries;
  }

  function readLine(rest: Buffer): readonly Entry[] {
    if (begunBytes + rest.length > MAX_LINE_BYTES) return [tooLong(line)];
    const bytes = begun.length === 0 ? rest : Buffer.concat([...begun, rest]);
    const entry = parseLine(line, bytes, noteIgnored);
    return entry === undefined ? [] : [entry];
  }

  function noteIgnored(nameOf: () => string): void {
    if (ignored.size >= IGNORED_SHOWN) return;
    const name = quoteName(nameOf());
    if (ignored.has(name)) return;
    ignored.add(name);
    warn(`line ${line}: ignored the field ${name}; known are ${FIELDS.join(', ')}`);
  }

  for await (const chunk of withoutByteOrderMark(chunks)) {
    first ??= chunk.find((byte) => byte !== NEWLINE && !isSpace(byte));
    // If its plants are on separate lines, only the last one is a valid line.
    if (first === ARRAY_START)
      throw new FileInvalid(
        'the file is a JSON array, not NDJSON (one plant per line); convert it with jq 1.7 or newer, ' +
          "since older ones round large ids: jq -c '.[]' FILE",
      );
    const entries: Entry[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      entries.push(...endLine(chunk.subarray(start, end)));
      start = end + 1;
    }
    const rest = chunk.subarray(start);
    const isReported = begunBytes > MAX_LINE_BYTES;
    begunBytes += rest.length;
    begun = begunBytes > MAX_LINE_BYTES ? [] : [...begun, rest];
    if (begunBytes > MAX_LINE_BYTES && !isReported) entries.push(tooLong(line));
    yield entries;
    if (begunBytes > MAX_SKIPPED_BYTES)
      throw new FileInvalid(
        `line ${line} does not end within ${MAX_SKIPPED_BYTES} bytes; is the file NDJSON?`,
      );
  }
  yield endLine(Buffer.alloc(0));
}

function tooLong(line: number): Entry {
  return { line, reason: `the line is longer than ${MAX_LINE_BYTES} bytes` };
}

function parseLine(
  line: number,
  bytes: Buffer,
  onIgnored: (nameOf: () => string) => void,
): Entry | undefined {
  if (isBlank(bytes)) return undefined;
  try {
    return toEntry(line, parseJson(bytes, newPlantFields, NUMBER_FIELDS, onIgnored), bytes.length);
  } catch (error: unknown) {
    if (error instanceof JsonInvalid) return { line, reason: `the line ${error.message}` };
    throw error;
  }
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every(isSpace);
}

function isSpace(byte: number): boolean {
  return byte === SPACE || byte === TAB || byte === RETURN;
}
