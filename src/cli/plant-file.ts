import { type FileHandle, open } from 'node:fs/promises';
import { extname } from 'node:path';
import { type Command, Option } from 'commander';
import { csv } from '../formats/csv.ts';
import type { Format } from '../formats/format.ts';
import { ndjson } from '../formats/ndjson.ts';
import { CommandFailed } from './command-error.ts';
import { fileFailed } from './file-error.ts';

const formats = { ndjson, csv };
export type FormatName = keyof typeof formats;

const extensions: Readonly<Record<string, FormatName>> = {
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
  '.csv': 'csv',
};

/** Stands for standard input or output. */
export const STANDARD_STREAM = '-';

/** Gives a command the flag that names the format of its file. */
export function addFormat(command: Command): Command {
  const text = 'how plants stand in the file; by default its extension (.ndjson, .jsonl, .csv) says';
  return command.addOption(new Option('--format <format>', text).choices(Object.keys(formats)));
}

/** The format that the flag names, or else the extension of the file; NDJSON on a standard stream. */
export function formatOf(file: string, flag: FormatName | undefined): Format {
  const name = flag ?? (file === STANDARD_STREAM ? 'ndjson' : extensions[extname(file).toLowerCase()]);
  if (name !== undefined) return formats[name];
  throw new CommandFailed(`the name ${file} tells no format; --format must be one of ndjson, csv`);
}

/** Where a command's plants come from. */
export interface Source {
  readonly chunks: AsyncIterable<Buffer>;
  /** Bytes in all, where that is known. */
  readonly size: number | undefined;
  /** Whether somebody types them. */
  readonly isTyped: boolean;
}

/** Opens a file for reading, or standard input. Rejects with CommandFailed when there is none to be read. */
export async function openSource(file: string): Promise<Source> {
  if (file === STANDARD_STREAM)
    return { chunks: process.stdin, size: undefined, isTyped: process.stdin.isTTY };
  const handle = await openFile(file);
  const stats = await handle.stat();
  if (stats.isDirectory()) throw new CommandFailed(`cannot read ${file}: it is a folder`);
  const chunks = handle.createReadStream({ highWaterMark: 256 * 1024 });
  return { chunks, size: stats.isFile() ? stats.size : undefined, isTyped: false };
}

async function openFile(file: string): Promise<FileHandle> {
  try {
    return await open(file);
  } catch (error: unknown) {
    throw fileFailed('read', file, error);
  }
}
