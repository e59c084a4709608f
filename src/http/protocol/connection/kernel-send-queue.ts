import { open } from 'node:fs/promises';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * Files in which Linux lists the TCP connections of a machine (proc(5)). Other systems have no such files.
 */
const FILES = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/**
 * Matches the line of a connection with bytes to send. Fields: local and remote address, state, bytes to
 * send.
 */
const WITH_QUEUE = /^ *\d+: (\S+) (\S+) \S\S ((?!00000000)[0-9A-F]{8}):/gm;

/** The kernel returns no more than a page of such a file per read. */
const PAGE_BYTES = 4 * 1024;

/**
 * Returns the number of bytes in a connection's send queue: written by the service, not acknowledged by the
 * client. Returns undefined if the queue is empty or unknown.
 */
export type SendQueueOf = (socket: Socket) => number | undefined;

/** The send queues of all sockets, and the time at which their read began (`performance.now()`). */
interface SendQueues {
  readonly of: SendQueueOf;
  readonly begunAt: number;
}

let reading: Promise<SendQueues> | undefined;

/**
 * Reads the send queues of all sockets, page by page: the event loop goes on between two of them. Calls during a read share
 * it, so that a process never reads twice at the same time. Ignores errors: then all queues are unknown.
 */
export function readSendQueues(): Promise<SendQueues> {
  reading ??= readQueues().finally(() => {
    reading = undefined;
  });
  return reading;
}

/** Caches the names of sockets: to render one takes microseconds, and thousands of connections may be idle. */
const names = new WeakMap<Socket, string>();

/** Returns the name of a connected socket in the kernel's files; undefined for a closed one. */
function nameOf(socket: Socket): string | undefined {
  const { localAddress, localPort, remoteAddress, remotePort } = socket;
  if (localAddress === undefined || remoteAddress === undefined) return undefined;
  const name = `${kernelName(localAddress, localPort)} ${kernelName(remoteAddress, remotePort)}`;
  names.set(socket, name);
  return name;
}

/** Reads the send queue of each connection that has unacknowledged or unsent bytes. */
async function readQueues(): Promise<SendQueues> {
  const begunAt = performance.now();
  const queues = new Map<string, number>();
  for (const file of FILES) {
    try {
      for await (const lines of readLines(file)) {
        for (const [, local, remote, bytes = ''] of lines.matchAll(WITH_QUEUE))
          queues.set(`${local} ${remote}`, Number.parseInt(bytes, 16));
      }
    } catch {
      // Ignores errors: only Linux has the files in `FILES`.
    }
  }
  const sendQueueOf: SendQueueOf = (socket) => {
    const name = names.get(socket) ?? nameOf(socket);
    return name === undefined ? undefined : queues.get(name);
  };
  return { of: sendQueueOf, begunAt };
}

/**
 * Reads a file page by page in the thread pool, and yields the complete lines of each page as one string. The file can
 * be long: it also lists connections that were closed in the last minute, up to `net.ipv4.tcp_max_tw_buckets`.
 */
async function* readLines(file: string): AsyncGenerator<string> {
  const handle = await open(file);
  try {
    const page = Buffer.allocUnsafeSlow(PAGE_BYTES);
    let rest = '';
    for (;;) {
      const { bytesRead } = await handle.read(page, 0, PAGE_BYTES, null);
      if (bytesRead === 0) return;
      const text = rest + page.toString('latin1', 0, bytesRead);
      const end = text.lastIndexOf('\n') + 1;
      yield text.slice(0, end);
      rest = text.slice(end);
    }
  } finally {
    await handle.close();
  }
}

/** Formats an address and a port as a little-endian kernel does: 32-bit words in host byte order, in hexadecimal. */
function kernelName(address: string, port = 0): string {
  // Removes the zone of a link-local address, such as `%eth0`: addresses in `/proc/net/tcp6` have no zone.
  const [bare = ''] = address.split('%', 1);
  const bytes = Buffer.from(ipaddr.parse(bare).toByteArray());
  return `${bytes.swap32().toString('hex').toUpperCase()}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
}
