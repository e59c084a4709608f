import { isUtf8 } from 'node:buffer';
import { type CsvError, type Parser, parse } from 'csv-parse';
import { stringify } from 'csv-stringify/sync';
import { Int64, type NewPlant } from '../plant.ts';
import { compileFromText } from '../validation.ts';
import {
  countLines,
  type Entry,
  FileInvalid,
  type Format,
  MAX_LINE_BYTES,
  toEntry,
  withoutByteOrderMark,
} from './format.ts';

const COLUMNS = ['id', 'name', 'tag'] as const;
type Column = (typeof COLUMNS)[number];

const readId = compileFromText(Int64);

/** A text, or nothing: `,,` is not there, `,"",` is empty. PostgreSQL's COPY tells NULL from an empty text the same way. */
type Cell = string | null;

/**
 * CSV (RFC 4180) with a header that names the columns `id`, `name` and, if need be, `tag`, in any order; others are ignored.
 * Texts stand as they are, also those that a spreadsheet takes for formulas.
 */
export const csv: Format = { read, header: `${COLUMNS.join(',')}\n`, write };

function write(plants: readonly NewPlant[]): string {
  // Quotes what has to be, and what is empty.
  return stringify(
    plants.map(({ id, name, tag }) => [id, name, tag ?? null]),
    { quoted_match: /^$/ },
  );
}

async function* read(chunks: AsyncIterable<Buffer>): AsyncGenerator<readonly Entry[]> {
  const lines = countLines();
  let entries: Entry[] = [];
  let lastBad = 0;
  let places: ReadonlyMap<Column, number> | undefined;

  function takeRecord(cells: readonly Cell[], bytes: number): void {
    const line = lines.upTo(bytes - 1) - breaksIn(cells);
    if (places === undefined) places = findColumns(cells);
    else entries.push(toPlantEntry(line, cells, places));
  }

  function takeError(error: CsvError): void {
    // Behind it, csv-parse would lose what else there is of a chunk.
    if (error.code === 'CSV_MAX_RECORD_SIZE') throw new FileInvalid(error.message);
    const bytes = Number(error.bytes);
    const line = lines.upTo(error.code.startsWith('CSV_RECORD_') ? bytes - 1 : bytes);
    // One quote out of place is often many errors.
    if (line !== lastBad) entries.push({ line, reason: `the line is not CSV: ${reasonOf(error)}` });
    lastBad = line;
  }

  const parser = startParser(takeRecord, takeError);
  for await (const chunk of withoutByteOrderMark(chunks)) {
    lines.add(chunk);
    await send(parser, chunk);
    yield entries;
    entries = [];
  }
  await end(parser);
  if (places === undefined) findColumns([]);
  yield entries;
}

function startParser(
  onRecord: (cells: readonly Cell[], bytes: number) => void,
  onError: (error: CsvError) => void,
): Parser {
  const parser = parse({
    // As bytes: csv-parse would replace what is not UTF-8 without a word.
    encoding: 'latin1',
    record_delimiter: ['\r\n', '\n'],
    skip_empty_lines: true,
    max_record_size: MAX_LINE_BYTES,
    cast: (text, { quoting }): Cell => (text === '' && !quoting ? null : text),
    skip_records_with_error: true,
    on_skip: (error) => {
      if (error !== undefined) onError(error);
      return undefined;
    },
    on_record: (cells: readonly Cell[], { bytes }) => {
      onRecord(cells, bytes);
      return null;
    },
  });
  // Whoever writes is told as well.
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

function findColumns(header: readonly Cell[]): ReadonlyMap<Column, number> {
  const places = new Map(COLUMNS.map((column) => [column, header.indexOf(column)]));
  const repeated = COLUMNS.find((column) => header.indexOf(column) !== header.lastIndexOf(column));
  if (places.get('id') === -1 || places.get('name') === -1 || repeated !== undefined) {
    throw new FileInvalid('the first line must name the columns, such as id,name,tag');
  }
  return places;
}

function toPlantEntry(line: number, cells: readonly Cell[], places: ReadonlyMap<Column, number>): Entry {
  const fields: Partial<Record<Column, unknown>> = {};
  for (const [column, place] of places) {
    const cell = cells[place] ?? null;
    if (cell === null) continue;
    const text = decode(cell);
    if (text === undefined) return { line, reason: `the field \`${column}\` is not UTF-8` };
    fields[column] = column === 'id' ? readId(text) : text;
  }
  return toEntry(line, fields);
}

/** The text that bytes stand for, each of them a character; undefined when they are not UTF-8. */
function decode(cell: string): string | undefined {
  if (isAscii(cell)) return cell;
  const bytes = Buffer.from(cell, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}

function isAscii(text: string): boolean {
  return !/[\x80-\xff]/.test(text);
}

function breaksIn(cells: readonly Cell[]): number {
  return cells.reduce((sum, cell) => sum + (cell?.includes('\n') ? cell.split('\n').length - 1 : 0), 0);
}

function reasonOf({ message }: CsvError): string {
  return message.replace(/ (?:at|on) line \d+/, '');
}
