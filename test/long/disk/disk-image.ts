import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { DiskEvents, FileChange, NameChange, TracedFile } from './disk-events.ts';

const SECTOR = 512;
const PAGE = 4_096;
const SHARED_MEMORY = '-shm';

/** The part that a cut keeps of the changes that no finished sync covers. */
const LOSSES = ['nothing', 'everything', 'the first calls', 'any calls', 'any pages', 'any sectors'] as const;
export type Loss = (typeof LOSSES)[number];

export interface Cut {
  /** A line of the trace: calls that began before it were issued. */
  readonly at: number;
  /** Syncs of the contents of files do nothing. A control: the store must break. */
  readonly blind: boolean;
  readonly random: () => number;
}

/** The files of a store after a power cut, by name. */
interface Image {
  readonly files: ReadonlyMap<string, Buffer>;
  readonly loss: Loss;
  /** Number of calls that no finished sync covers. */
  readonly uncertain: number;
}

export function imageAt(events: DiskEvents, { at, blind, random }: Cut): Image {
  const loss = LOSSES[Math.floor(random() * LOSSES.length)] ?? 'nothing';
  const files = new Map<string, Buffer>();
  let uncertain = 0;
  for (const name of new Set(events.names.map((change) => change.name))) {
    const file = fileOf(events, name, at, random);
    if (file === undefined) continue;
    // Nothing syncs this index of the log; a start makes it again, whatever it finds.
    if (name.endsWith(SHARED_MEMORY)) {
      if (random() < 0.5) files.set(name, randomBytes(8 * PAGE));
      continue;
    }
    const issued = file.changes.filter(({ begun }) => begun < at);
    const certain = blind ? 0 : certainIn(file, at);
    uncertain += issued.length - certain;
    files.set(name, contentOf(issued, certain, loss, random));
  }
  return { files, loss, uncertain };
}

/** Writes an image to a new folder. Returns the path of the database file. */
export async function writeImage(folder: string, { files }: Image, name: string): Promise<string> {
  await mkdir(folder, { mode: 0o700 });
  for (const [file, content] of files) await writeFile(join(folder, file), content, { mode: 0o600 });
  return join(folder, name);
}

/** True if a checkpoint has begun to change the database file and its sync has not finished. */
export function isInCheckpoint(events: DiskEvents, name: string, at: number): boolean {
  const file = events.names.find((change) => change.name === name)?.file;
  if (file === undefined) return false;
  return file.changes.findIndex(({ begun }) => begun < at) >= 0 && certainIn(file, at) < issuedIn(file, at);
}

function issuedIn({ changes }: TracedFile, at: number): number {
  const next = changes.findIndex(({ begun }) => begun > at);
  return next < 0 ? changes.length : next;
}

/** The number of first changes that ended before a finished sync began. */
function certainIn({ changes, syncs }: TracedFile, at: number): number {
  const sync = syncs.findLast(({ ended }) => ended < at);
  if (sync === undefined) return 0;
  const next = changes.findIndex(({ ended }) => ended > sync.begun);
  return next < 0 ? changes.length : next;
}

/** The file that a name leads to: the last synced change of the folder, or any later one. */
function fileOf(
  { names, folderSyncs }: DiskEvents,
  name: string,
  at: number,
  random: () => number,
): TracedFile | undefined {
  const issued = names.filter((change) => change.name === name && change.begun < at);
  const sync = folderSyncs.findLast(({ ended }) => ended < at);
  const isCertain = ({ ended }: NameChange): boolean => sync !== undefined && ended < sync.begun;
  const certain = issued.filter(isCertain).length;
  const kept = certain + Math.floor(random() * (issued.length - certain + 1));
  return issued[kept - 1]?.file;
}

/** Applies the certain changes, and of the others those that the loss keeps. */
function contentOf(issued: readonly FileChange[], certain: number, loss: Loss, random: () => number): Buffer {
  const content = new Content();
  for (const change of issued.slice(0, certain)) content.apply(change);
  const rest = issued.slice(certain);
  const first = Math.floor(random() * (rest.length + 1));
  const share = random();
  for (const [index, change] of rest.entries()) {
    if (loss === 'nothing') break;
    if ((loss === 'any pages' || loss === 'any sectors') && change.kind === 'write') {
      const size = loss === 'any pages' ? PAGE : SECTOR;
      for (const piece of piecesOf(change, size)) {
        if (random() < share) content.apply(piece);
        // The length of a file may reach the disk before its content.
        else if (random() < 0.5) content.grow(piece.offset + piece.bytes.length);
      }
    } else if (loss === 'everything' || (loss === 'the first calls' ? index < first : random() < share)) {
      content.apply(change);
    }
  }
  return content.bytes();
}

type Write = Extract<FileChange, { kind: 'write' }>;

function piecesOf(change: Write, size: number): readonly Write[] {
  const { offset, bytes } = change;
  const pieces: Write[] = [];
  for (let from = 0; from < bytes.length; ) {
    const to = Math.min(bytes.length, from + size - ((offset + from) % size));
    pieces.push({ ...change, offset: offset + from, bytes: bytes.subarray(from, to) });
    from = to;
  }
  return pieces;
}

class Content {
  #buffer = Buffer.alloc(1 << 20);
  #length = 0;

  apply(change: FileChange): void {
    if (change.kind === 'truncate') {
      this.grow(change.length);
      this.#buffer.fill(0, change.length, this.#length);
      this.#length = change.length;
      return;
    }
    this.grow(change.offset + change.bytes.length);
    change.bytes.copy(this.#buffer, change.offset);
  }

  grow(length: number): void {
    if (length > this.#buffer.length) {
      const larger = Buffer.alloc(2 * length);
      this.#buffer.copy(larger);
      this.#buffer = larger;
    }
    this.#length = Math.max(this.#length, length);
  }

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }
}
