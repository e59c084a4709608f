import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Where Linux lists the TCP connections of this machine (proc(5)); other systems have no such file. */
const FILES = ['/proc/self/net/tcp', '/proc/self/net/tcp6'];

/** The bytes of a connection that the kernel took and the peer has not; undefined where that is not known. */
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

function readQueues(): ReadonlyMap<string, number> {
  const queues = new Map<string, number>();
  for (const file of FILES) {
    for (const line of readLines(file)) {
      const [, local, remote, , bytes = ''] = line.trim().split(/\s+/, 5);
      queues.set(`${local} ${remote}`, Number.parseInt(bytes, 16));
    }
  }
  return queues;
}

function readLines(file: string): readonly string[] {
  try {
    return readFileSync(file, 'latin1').split('\n').slice(1, -1);
  } catch {
    return [];
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
