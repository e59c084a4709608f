import { closeSync, createReadStream, fstatSync, open } from 'node:fs';
import { Socket } from 'node:net';
import { extname } from 'node:path';
import type { Readable } from 'node:stream';
import { isatty, ReadStream } from 'node:tty';
import { promisify } from 'node:util';
import { type Command, Option } from 'commander';
import { csv } from '../formats/csv.ts';
import type { Format } from '../formats/format.ts';
import { ndjson } from '../formats/ndjson.ts';
import { parseFile } from './arguments.ts';
import { CommandFailed, explainFileError } from './command-errors.ts';
import type { CommandContext } from './context.ts';

/** The file formats of import and export, by name. */
export const formats = { ndjson, csv };
export type FormatName = keyof typeof formats;

const extensions: Readonly<Record<string, FormatName>> = {
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
  '.csv': 'csv',
};

/** The file argument that means standard input or output. */
export const STANDARD_STREAM = '-';

/**
 * Creates a parser for the argument that names a file of plants. The parser returns an absolute path, or `-`.
 */
export function parsePlantFile(context: CommandContext): (text: string) => string {
  const parse = parseFile(context);
  return (text) => (text === STANDARD_STREAM ? text : parse(text));
}

export function addFormat(command: Command): Command {
  const text = 'file format; by default from the extension (.ndjson, .jsonl, .csv)';
  return command.addOption(new Option('--format <format>', text).choices(Object.keys(formats)));
}

/**
 * Returns the file format: from the flag, or else from the file extension. A standard stream defaults to
 * NDJSON.
 */
export function formatOf(file: string, flag: FormatName | undefined): Format {
  const name = flag ?? (file === STANDARD_STREAM ? 'ndjson' : extensions[extname(file).toLowerCase()]);
  if (name !== undefined) return formats[name];
  throw new CommandFailed(
    `cannot detect the format of ${file} from its extension; add --format ndjson or --format csv`,
  );
}

/** The input of an import. The caller must destroy its stream `chunks` at the end. */
export interface Source {
  readonly chunks: Readable;
  /** The file, or `standard input`, for messages. */
  readonly name: string;
  /** Size of the input in bytes, if known. */
  readonly size: number | undefined;
  /** True if the user types the input at a terminal. */
  readonly isTyped: boolean;
}

/** Opens a file or standard input. Rejects with CommandFailed if the file cannot be read. */
export async function openSource({ stdin }: CommandContext, file: string): Promise<Source> {
  if (file === STANDARD_STREAM) {
    // Node provides an empty stream if standard input is a folder.
    if (typeof stdin.fd === 'number' && fstatSync(stdin.fd).isDirectory())
      throw new CommandFailed('cannot read standard input: it is a folder');
    return { chunks: stdin, name: 'standard input', size: undefined, isTyped: stdin.isTTY === true };
  }
  const fd = await openFile(file);
  const stats = fstatSync(fd);
  if (stats.isDirectory()) {
    closeSync(fd);
    throw new CommandFailed(`cannot read ${file}: it is a folder`);
  }
  const size = stats.isFile() ? stats.size : undefined;
  return { chunks: readerOf(fd, stats.isFIFO()), name: file, size, isTyped: isatty(fd) };
}

// A pending read of a FIFO or terminal by `fs` would keep the process alive until the writer writes or ends.
function readerOf(fd: number, isFifo: boolean): Readable {
  if (isatty(fd)) return new ReadStream(fd);
  return isFifo
    ? new Socket({ fd, writable: false })
    : createReadStream('', { fd, highWaterMark: 256 * 1024 });
}

async function openFile(file: string): Promise<number> {
  try {
    return await promisify(open)(file, 'r');
  } catch (error: unknown) {
    throw explainFileError('read', file, error);
  }
}
