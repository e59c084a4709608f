import { isUtf8 } from 'node:buffer';
import { type CsvError, type InfoField, type Parser, parse } from 'csv-parse';
import { isOptionalField, NewPlant } from '../plant.ts';
import { compileTextParser } from '../validation.ts';
import {
  type Entry,
  FIELDS,
  FileInvalid,
  type Format,
  IGNORED_SHOWN,
  MAX_LINE_BYTES,
  NEWLINE,
  quoteName,
  toEntry,
  withoutByteOrderMark,
} from './format.ts';

type Column = keyof NewPlant;

const REQUIRED_COLUMNS = FIELDS.filter((column) => column === 'id' || !isOptionalField(column));

/**
 * Functions that convert the text of a cell to the type of its column, by column. They do not change the text
 * of a string column.
 */
const readers = new Map(FIELDS.map((column) => [column, compileTextParser(NewPlant.properties[column])]));

/** Max cells of a line, as in spreadsheets, to bound memory: `max_record_size` does not count commas. */
export const MAX_CELLS = 16_384;

/**
 * Max characters in the messages of unreported errors; building them takes about half a second. csv-parse copies the cell
 * into the message of each misplaced quote, so without a limit the time is quadratic.
 */
const MAX_UNREPORTED_CHARACTERS = 2 * MAX_LINE_BYTES;
/** Unreported characters that each byte of the file adds to the limit, so that many short invalid lines stay below it. */
const UNREPORTED_PER_BYTE = 256;

/** A cell: `,,` is null and `,"",` is an empty text, as in PostgreSQL's COPY. */
type Cell = string | null;

/**
 * CSV (RFC 4180) with a header line. Columns may be in any order. Unknown columns are ignored, with a
 * warning; columns of optional fields may be absent. The text of a cell stays unchanged, even if a spreadsheet
 * would read it as a formula.
 */
export const csv: Format = { read, header: `${FIELDS.join(',')}\n`, write };

function write(plants: Parameters<Format['write']>[0]): string {
  return plants.map((plant) => `${FIELDS.map((column) => toCell(plant[column])).join(',')}\n`).join('');
}

/** Renders a value as a cell. Quotes an empty text: an unquoted empty cell means an absent field. */
function toCell(value: bigint | number | string | null | undefined): string {
  const text = String(value ?? '');
  const needsQuotes = value === '' || /[",\r\n]/.test(text);
  return needsQuotes ? `"${text.replaceAll('"', '""')}"` : text;
}

async function* read(
  chunks: AsyncIterable<Buffer>,
  warn?: (text: string) => void,
): AsyncGenerator<readonly Entry[]> {
  const lines = countLines();
  let entries: Entry[] = [];
  /** First line of the current record. Its faults are reported once, with this line. */
  let line = 1;
  /** Empty lines of the file before that record. */
  let emptyLines = 0;
  let lastBad = 0;
  let unreported = 0;
  const header: Cell[] = [];
  let places: ReadonlyMap<Column, number> | undefined;

  function takeCell(text: string, { quoting, index, bytes, empty_lines }: InfoField): Cell {
    const cell = text === '' && !quoting ? null : text;
    if (index === 0) {
      line = lines.upTo(bytes) - breaksIn(text);
      emptyLines = empty_lines;
    }
    if (places === undefined) header.push(cell);
    if (index >= MAX_CELLS)
      throw new FileInvalid(separatorFaultOf(header) ?? `line ${line} has more than ${MAX_CELLS} cells`);
    return cell;
  }

  function takeRecord(cells: readonly Cell[]): void {
    if (places === undefined) places = readHeader(header, warn);
    else if (cells.length === header.length) entries.push(toPlantEntry(line, cells, places));
    else entries.push(notCsv(line, `expected ${header.length} cells, found ${cells.length}`));
  }

  function takeError(error: CsvError): void {
    // A fault in the first cell comes before the cell. Its record follows the last one and empty lines.
    if (error.index === 0) line = lines.upTo(Number(error.bytes)) + Number(error.empty_lines) - emptyLines;
    // Ends the import at a line that is too long. The import cannot skip only that line: after this error
    // csv-parse drops the rest of the current chunk.
    if (error.code === 'CSV_MAX_RECORD_SIZE')
      throw new FileInvalid(`line ${line} or the quoted text in it is longer than ${MAX_LINE_BYTES} bytes`);
    if (places === undefined)
      throw unusableHeader(
        separatorFaultOf([...header, textAt(error)]) ??
          `the first line is not CSV: ${reasonOf(error)}; it must name the columns`,
      );
    // Reports only the first error of a record: one misplaced quote often causes many errors.
    if (line !== lastBad) entries.push(notCsv(line, reasonOf(error)));
    else unreported += error.message.length;
    lastBad = line;
    if (unreported > MAX_UNREPORTED_CHARACTERS)
      throw new FileInvalid(`line ${line} has too many misplaced quotation marks`);
  }

  const parser = startParser(takeCell, takeRecord, takeError);
  for await (const chunk of withoutByteOrderMark(chunks)) {
    lines.add(chunk);
    unreported = Math.max(0, unreported - chunk.length * UNREPORTED_PER_BYTE);
    await send(parser, chunk);
    yield entries;
    entries = [];
  }
  await end(parser);
  if (places === undefined) readHeader(header);
  yield entries;
}

/** Counts the lines of a file that is read in chunks. */
function countLines() {
  let chunks: Buffer[] = [];
  let start = 0;
  let offset = 0;
  let line = 1;

  return {
    add(chunk: Buffer): void {
      chunks.push(chunk);
    },
    /**
     * Returns the number of the line that contains the byte at an offset. Offsets must not decrease from call
     * to call.
     */
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

function startParser(
  onCell: (text: string, context: InfoField) => Cell,
  onRecord: (cells: readonly Cell[]) => void,
  onError: (error: CsvError) => void,
): Parser {
  const parser = parse({
    // Reads each byte as one character; `decode` later reads the cells as UTF-8. If csv-parse read UTF-8, it
    // would silently replace invalid bytes.
    encoding: 'latin1',
    record_delimiter: ['\r\n', '\n'],
    skip_empty_lines: true,
    relax_column_count: true,
    max_record_size: MAX_LINE_BYTES,
    cast: onCell,
    skip_records_with_error: true,
    on_skip: (error) => {
      if (error !== undefined) onError(error);
      return undefined;
    },
    on_record: (cells: readonly Cell[]) => {
      onRecord(cells);
      return null;
    },
  });
  // Ignores `error` events: without a listener, they would end the process. The promises of `send` and `end`
  // reject with the same errors.
  parser.on('error', () => undefined);
  return parser.resume();
}

function send(parser: Parser, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    parser.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}

function end(parser: Parser): Promise<void> {
  return new Promise((resolve, reject) => {
    parser.once('error', reject).once('end', resolve).end();
  });
}

function readHeader(header: readonly Cell[], warn?: (text: string) => void): ReadonlyMap<Column, number> {
  const fault = faultOf(header);
  if (fault !== undefined) throw unusableHeader(fault);
  const unknown = header.filter((cell) => cell !== null && FIELDS.every((column) => column !== cell));
  if (unknown.length > 0) warn?.(describeIgnored(unknown));
  return new Map(FIELDS.map((column) => [column, header.indexOf(column)]));
}

function describeIgnored(columns: readonly Cell[]): string {
  const names = columns.slice(0, IGNORED_SHOWN).map((cell) => quoteName(decode(cell ?? '') ?? '?'));
  const more = columns.length > IGNORED_SHOWN ? ` and ${columns.length - IGNORED_SHOWN} more` : '';
  const noun = columns.length === 1 ? 'column' : 'columns';
  return `ignored the ${noun} ${names.join(', ')}${more}; known are ${FIELDS.join(', ')}`;
}

function unusableHeader(fault: string): FileInvalid {
  return new FileInvalid(`${fault}, such as ${FIELDS.join(',')}`);
}

function faultOf(header: readonly Cell[]): string | undefined {
  const [first] = header;
  if (first === undefined) return 'the file is empty or blank; the first line must name the columns';
  const fault = separatorFaultOf(header);
  if (fault !== undefined) return fault;
  const repeated = FIELDS.find((column) => header.indexOf(column) !== header.lastIndexOf(column));
  if (repeated !== undefined) return `the column ${repeated} occurs twice; name each column once`;
  const missing = FIELDS.filter((column) => !header.includes(column));
  // Also finds a misspelled optional column, which would be ignored as unknown.
  if (missing.some((column) => header.some((cell) => cell?.trim().toLowerCase() === column)))
    return 'the column names must be in lower case and without spaces';
  return missing.some((column) => REQUIRED_COLUMNS.includes(column))
    ? 'the first line must name the columns'
    : undefined;
}

/** Finds other separators and line ends than those of CSV in a first line that may be incomplete. */
function separatorFaultOf(header: readonly Cell[]): string | undefined {
  if (header.some((cell) => cell?.includes('\r')))
    return 'the first line must end in LF or CRLF, not CR, and name the columns';
  const separator = header.length === 1 ? header[0]?.match(/[;\t]/)?.[0] : undefined;
  return separator && `the columns are separated by ${separator === ';' ? 'semicolons' : 'tabs'}; use commas`;
}

function toPlantEntry(line: number, cells: readonly Cell[], places: ReadonlyMap<Column, number>): Entry {
  const fields: Partial<Record<Column, unknown>> = {};
  let characters = 0;
  for (const [column, place] of places) {
    const cell = cells[place] ?? null;
    if (cell === null) continue;
    const text = decode(cell);
    if (text === undefined) return { line, reason: `the field \`${column}\` is not UTF-8` };
    fields[column] = readers.get(column)?.(text);
    characters += text.length;
  }
  return toEntry(line, fields, characters);
}

/** Decodes a cell as UTF-8; each character of the cell is one byte. Returns undefined for invalid UTF-8. */
function decode(cell: string): string | undefined {
  if (!/[\x80-\xff]/.test(cell)) return cell;
  const bytes = Buffer.from(cell, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}

// Does not split the cell: the list of many short lines would take ten times its memory.
function breaksIn(cell: string): number {
  let breaks = 0;
  for (let at = cell.indexOf('\n'); at >= 0; at = cell.indexOf('\n', at + 1)) breaks += 1;
  return breaks;
}

function notCsv(line: number, reason: string): Entry {
  return { line, reason: `the line is not CSV: ${reason}` };
}

/**
 * Reasons by csv-parse error code. They replace the messages of csv-parse, which contain option names of that
 * library.
 */
const REASONS: ReadonlyMap<string, string> = new Map([
  ['INVALID_OPENING_QUOTE', 'a quotation mark stands inside a cell that does not begin with one'],
  ['CSV_INVALID_CLOSING_QUOTE', 'text follows the closing quotation mark of a cell'],
  ['CSV_QUOTE_NOT_CLOSED', 'a cell has no closing quotation mark'],
]);

/** Returns the text before a misplaced opening quotation mark, or the character after a closing one. */
function textAt({ field, message }: CsvError): string {
  return typeof field === 'string' ? field : (/got "(.)"/s.exec(message)?.[1] ?? '');
}

function reasonOf({ code, message }: CsvError): string {
  return REASONS.get(code) ?? message.replace(/ (?:at|on) line \d+/, '');
}
