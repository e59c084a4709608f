import { closeSync, openSync, readSync } from 'node:fs';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Where Linux lists the TCP connections of this machine (proc(5)); other systems have no such file. */
const FILES = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** A line for each connection: local address, remote address, state, bytes to send (not 0 here) and to receive. */
const WITH_QUEUE = /^ *\d+: (\S+) (\S+) \S\S ((?!00000000)[0-9A-F]{8}):/gm;

const chunk = Buffer.allocUnsafeSlow(16 * 1024);

/** The bytes of a connection that the kernel took and the peer has not; undefined for none, and where that is not known. */
export type SendQueueOf = (socket: Socket) => number | undefined;

/** Looks at the send queues of the kernel as they are now; they are read at the first question. */
export function lookAtSendQueues(): SendQueueOf {
  let queues: ReadonlyMap<string, number> | undefined;
  return ({ localAddress, localPort, remoteAddress, remotePort }) => {
    if (localAddress === undefined || remoteAddress === undefined) return undefined;
    queues ??= readQueues();
    const local = kernelName(localAddress, localPort);
    const remote = kernelName(remoteAddress, remotePort);
    return local === undefined || remote === undefined ? undefined : queues.get(`${local} ${remote}`);
  };
}

/** The connections whose peer has not taken everything. */
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

/** Yields whole lines, a few at a time: the list has a line for each connection of the last minute, which may be megabytes. */
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
    // Not Linux.
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** An address and a port as the kernel writes them: words of 32 bits in the order of the machine, in hexadecimal. */
function kernelName(address: string, port = 0): string | undefined {
  // The zone of a link-local address may be a name that is no part of an address.
  const [bare = ''] = address.split('%', 1);
  if (!ipaddr.isValid(bare)) return undefined;
  const bytes = Buffer.from(ipaddr.parse(bare).toByteArray());
  return `${bytes.swap32().toString('hex').toUpperCase()}:${port.toString(16).toUpperCase().padStart(4, '0')}`;
}
