import { closeSync, openSync, readSync } from 'node:fs';
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

const chunk = Buffer.allocUnsafeSlow(16 * 1024);

/**
 * Returns the number of bytes in a connection's send queue: written by the service, not acknowledged by the
 * client. Returns undefined if the queue is empty or unknown.
 */
export type SendQueueOf = (socket: Socket) => number | undefined;

/**
 * Returns a function that looks up the kernel's send queue of a socket. The first lookup reads the queues of
 * all sockets. Later lookups with the same function reuse this result.
 */
export function lookAtSendQueues(): SendQueueOf {
  let queues: ReadonlyMap<string, number> | undefined;
  return ({ localAddress, localPort, remoteAddress, remotePort }) => {
    if (localAddress === undefined || remoteAddress === undefined) return undefined;
    queues ??= readQueues();
    return queues.get(`${kernelName(localAddress, localPort)} ${kernelName(remoteAddress, remotePort)}`);
  };
}

/** Reads the send queue of each connection that has unacknowledged or unsent bytes. */
function readQueues(): ReadonlyMap<string, number> {
  const queues = new Map<string, number>();
  for (const file of FILES) {
    for (const lines of readLines(file)) {
      for (const [, local, remote, bytes = ''] of lines.matchAll(WITH_QUEUE))
        queues.set(`${local} ${remote}`, Number.parseInt(bytes, 16));
    }
  }
  return queues;
}

/**
 * Reads a file in chunks, and yields the complete lines of each chunk as one string. The file can be long,
 * since it also lists connections that were closed in the last minute.
 */
function* readLines(file: string): Generator<string> {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, 'r');
    let rest = '';
    for (;;) {
      const read = readSync(descriptor, chunk, 0, chunk.length, null);
      if (read === 0) return;
      const text = rest + chunk.toString('latin1', 0, read);
      const end = text.lastIndexOf('\n') + 1;
      yield text.slice(0, end);
      rest = text.slice(end);
    }
  } catch {
    // Ignores errors: only Linux has the files in `FILES`.
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** Formats an address and a port as the kernel does: 32-bit words in host byte order, in hexadecimal. */
function kernelName(address: string, port = 0): string {
  // Removes the zone of a link-local address, such as `%eth0`: addresses in `/proc/net/tcp6` have no zone.
  const [bare = ''] = address.split('%', 1);
  const bytes = Buffer.from(ipaddr.parse(bare).toByteArray());
  return `${bytes.swap32().toString('hex').toUpperCase()}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
}
