import { createReadStream } from 'node:fs';
import { basename, dirname } from 'node:path';
import { createInterface } from 'node:readline';
import type { Command } from '../../support/faults/disk-limits.ts';

/** A call that changes a file of the store. It was issued at line `begun` of the trace and returned at line `ended`. */
interface Span {
  readonly begun: number;
  /** Infinity for a call that never returned. */
  readonly ended: number;
}

/** A change of the content of a file. */
export type FileChange = Span &
  ({ readonly kind: 'write'; readonly offset: number; readonly bytes: Buffer } | Truncation);
interface Truncation {
  readonly kind: 'truncate';
  readonly length: number;
}

/** A file from its creation on; a later file of the same name is another one. */
export interface TracedFile {
  readonly name: string;
  readonly changes: FileChange[];
  readonly syncs: Span[];
}

/** A change of the folder: the name leads to this file, or to none. */
export interface NameChange extends Span {
  readonly name: string;
  readonly file: TracedFile | undefined;
}

/** Everything that a service did to the folder of its store, in the order of the trace. */
export interface DiskEvents {
  readonly names: NameChange[];
  readonly folderSyncs: Span[];
  /** The line at which the response to a request was sent. */
  readonly responses: ReadonlyMap<string, number>;
  /** The lines between which a power cut differs from its neighbours. */
  readonly moments: readonly number[];
}

// cspell:ignore openat pwritev sendmsg sendto unlinkat renameat linkat creat
const CHANGES = 'openat,pwrite64,pwritev,pwritev2,ftruncate,fallocate,fsync,fdatasync,sync_file_range';
const RESPONSES = 'write,writev,sendmsg,sendto';
const NAMES = 'unlink,unlinkat,rename,renameat,renameat2,link,linkat,creat,truncate';

/** Runs a command under strace, which writes every change of a file, with its bytes, to `trace`. */
export function traced(trace: string, command: Command): Command {
  const calls = `trace=${CHANGES},${RESPONSES},${NAMES}`;
  // -D keeps the pid of the program.
  return [
    'strace',
    '-D',
    '-f',
    '--seccomp-bpf',
    '-y',
    '-qq',
    '-s',
    '10000000',
    '-o',
    trace,
    '-e',
    calls,
    ...command,
  ];
}

interface Call extends Span {
  readonly name: string;
  readonly args: string;
  readonly result: number;
}

/** Reads a trace of a service whose store is `file`. Rejects on a call that it does not know how to repeat. */
export async function readTrace(trace: string, file: string): Promise<DiskEvents> {
  const folder = dirname(file);
  const files = new Map<string, TracedFile>();
  const names: NameChange[] = [];
  const folderSyncs: Span[] = [];
  const responses = new Map<string, number>();
  const moments = new Set<number>();

  function note<Event extends Span>(events: Event[], event: Event): void {
    events.push(event);
    moments.add(event.begun + 0.5);
    if (Number.isFinite(event.ended)) moments.add(event.ended + 0.5);
  }

  function nameOf(path: string): string | undefined {
    return dirname(path) === folder && path.startsWith(file) ? basename(path) : undefined;
  }

  function open({ args, result, begun, ended }: Call): void {
    const [, path = '', flags = ''] = /^[^,]+, "([^"]*)", ([A-Z_|]+)/.exec(args) ?? [];
    const name = nameOf(path);
    if (name === undefined || result < 0 || files.has(name)) return;
    if (flags.includes('O_TRUNC')) throw new Error(`a file is opened with O_TRUNC: ${args}`);
    const created = { name, changes: [], syncs: [] };
    files.set(name, created);
    note(names, { name, file: created, begun, ended });
  }

  function unlink({ args, result, begun, ended }: Call): void {
    const name = nameOf(/^"([^"]*)"/.exec(args)?.[1] ?? '');
    if (name === undefined || result < 0) return;
    files.delete(name);
    note(names, { name, file: undefined, begun, ended });
  }

  function change(call: Call): void {
    const { name, args, result, begun, ended } = call;
    const [descriptor = '', path = ''] = /^\d+<([^>]*)>/.exec(args) ?? [];
    if (path === folder && name === 'fsync' && result === 0) note(folderSyncs, { begun, ended });
    const target = files.get(nameOf(path) ?? '');
    if (target === undefined || !(result >= 0)) return;
    const rest = args.slice(descriptor.length + 2);
    if (name === 'fsync' || name === 'fdatasync') {
      note(target.syncs, { begun, ended });
    } else if (name === 'pwrite64') {
      const end = rest.lastIndexOf('"');
      const bytes = decode(rest.slice(1, end));
      const [, length, offset] = rest.slice(end + 1).split(', ');
      if (bytes.length !== Number(length)) throw new Error(`the trace lacks bytes of ${path}: ${length}`);
      // What a call did that never returned is in doubt as a whole.
      const written = Number.isFinite(ended) ? bytes.subarray(0, result) : bytes;
      note(target.changes, { kind: 'write', offset: Number(offset), bytes: written, begun, ended });
    } else if (name === 'ftruncate') {
      note(target.changes, { kind: 'truncate', length: Number(rest), begun, ended });
    } else {
      throw new Error(`the recorder does not know ${name} on ${path}`);
    }
  }

  for await (const call of callsOf(trace)) {
    if (RESPONSES.split(',').includes(call.name) && !call.args.includes(`<${folder}/`)) {
      for (const [, id = ''] of call.args.matchAll(/x-request-id: ([\w-]+)\\r/gi))
        responses.set(id, call.begun);
      continue;
    }
    if (call.name === 'openat') open(call);
    else if (call.name === 'unlink') unlink(call);
    else if (call.args.includes(folder)) change(call);
  }
  return { names, folderSyncs, responses, moments: [...moments].sort((one, other) => one - other) };
}

/** Yields the calls in the order in which they began. A call that never returned has the result 0. */
async function* callsOf(trace: string): AsyncGenerator<Call> {
  const calls: Call[] = [];
  const unfinished = new Map<string, number>();
  let line = 0;
  for await (const text of createInterface({ input: createReadStream(trace, 'latin1') })) {
    line += 1;
    const [head = '', thread = '', resumed, name = ''] =
      /^(\d+) +(?:(<\.\.\. )(\w+) resumed>|\w+\()/.exec(text) ?? [];
    if (head === '') continue;
    const result = Number(/\) += (-?\d+)[^)]*(?:\([^)]*\))?$/.exec(text)?.[1] ?? Number.NaN);
    if (resumed !== undefined) {
      const index = unfinished.get(thread);
      const begun = index === undefined ? undefined : calls[index];
      if (index === undefined || begun?.name !== name)
        throw new Error(`the trace is not in order at ${line}`);
      calls[index] = { ...begun, result, ended: line };
      unfinished.delete(thread);
      continue;
    }
    const started = head.trim().slice(thread.length).trim().slice(0, -1);
    const isUnfinished = text.endsWith(' <unfinished ...>');
    const close = isUnfinished ? text.length - ' <unfinished ...>'.length : text.lastIndexOf(') ');
    const args = text.slice(head.length, close);
    if (isUnfinished) unfinished.set(thread, calls.length);
    calls.push({
      name: started,
      args,
      result: isUnfinished ? 0 : result,
      begun: line,
      ended: isUnfinished ? Number.POSITIVE_INFINITY : line,
    });
  }
  yield* calls;
}

const ESCAPES: Readonly<Record<string, number>> = { n: 10, t: 9, v: 11, f: 12, r: 13, '"': 34, '\\': 92 };

/** Decodes a string of strace: escapes of C, with octal codes of one to three digits. */
function decode(text: string): Buffer {
  const bytes = Buffer.allocUnsafe(text.length);
  let length = 0;
  for (let at = 0; at < text.length; at += 1) {
    let code = text.charCodeAt(at);
    if (code === 92) {
      at += 1;
      const simple = ESCAPES[text.charAt(at)];
      const octal = simple === undefined ? (/^[0-7]{1,3}/.exec(text.slice(at, at + 3))?.[0] ?? '') : '';
      if (simple === undefined && octal === '') throw new Error(`unknown escape \\${text.charAt(at)}`);
      code = simple ?? Number.parseInt(octal, 8);
      at += Math.max(octal.length - 1, 0);
    }
    bytes[length] = code;
    length += 1;
  }
  return bytes.subarray(0, length);
}
