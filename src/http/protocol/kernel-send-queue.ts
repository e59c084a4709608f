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
  return (socket) => {
    queues ??= readQueues();
    const name = names.get(socket) ?? nameOf(socket);
    return name === undefined ? undefined : queues.get(name);
  };
}

/** Names of the sockets of earlier lookups: to render one takes microseconds, and thousands may be idle. */
const names = new WeakMap<Socket, string>();

/** Returns the name of a connected socket in the kernel's files; undefined for a closed one. */
function nameOf(socket: Socket): string | undefined {
  const { localAddress, localPort, remoteAddress, remotePort } = socket;
  if (localAddress === undefined || remoteAddress === undefined) return undefined;
  const name = `${kernelName(localAddress, localPort)} ${kernelName(remoteAddress, remotePort)}`;
  names.set(socket, name);
  return name;
}

/** Observes whether the client of a connection accepts the bytes of its responses. */
export class SendProgress {
  /** Ticks since the client last accepted a byte. */
  stalledTicks = 0;
  readonly #socket: Socket;
  readonly #timeoutTicks: number;
  /** Length of the kernel's send queue, as last read. */
  #queue: number | undefined;
  /** True if `#queue` was read after the client last accepted a byte. */
  #hasLooked = false;
  #lastUnsent = 0;
  #lastWritten = 0;

  constructor(socket: Socket, timeoutTicks: number) {
    this.#socket = socket;
    this.#timeoutTicks = timeoutTicks;
  }

  /**
   * Counts one tick. Returns true if the client has accepted no byte for the timeout. `sendQueueOf` is undefined
   * if the tick reads no send queues.
   */
  tick(sendQueueOf: SendQueueOf | undefined): boolean {
    const { writableLength, bytesWritten } = this.#socket;
    const hasMoved = bytesWritten !== this.#lastWritten || writableLength < this.#lastUnsent;
    this.#lastUnsent = writableLength;
    this.#lastWritten = bytesWritten;
    this.stalledTicks = writableLength === 0 || hasMoved ? 0 : this.stalledTicks + 1;
    if (hasMoved) this.#hasLooked = false;
    return sendQueueOf !== undefined && this.stalledTicks > 0 && this.#hasStalled(sendQueueOf);
  }

  // The kernel takes new bytes from Node only when a third of the send buffer is free. So the length of the
  // kernel's send queue must be unchanged too: a client that reads slowly would look stalled otherwise.
  #hasStalled(sendQueueOf: SendQueueOf): boolean {
    const queue = sendQueueOf(this.#socket);
    const isSame = this.#hasLooked && queue === this.#queue;
    if (!isSame && this.#hasLooked) this.stalledTicks = 1;
    this.#queue = queue;
    this.#hasLooked = true;
    return isSame && this.stalledTicks >= this.#timeoutTicks;
  }

  /**
   * Returns the bytes of complete responses that the kernel has accepted and the client has not, and whether
   * their number has changed since the last look.
   */
  unread(sendQueueOf: SendQueueOf | undefined): { readonly bytes: number; readonly hasChanged: boolean } {
    if (sendQueueOf === undefined) return { bytes: 0, hasChanged: false };
    const bytes = sendQueueOf(this.#socket) ?? 0;
    const hasChanged = bytes > 0 && bytes !== this.#queue;
    this.#queue = bytes;
    return { bytes, hasChanged };
  }
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
