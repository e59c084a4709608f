/** Error: the request line alone exceeds the limit for request line and headers together. */
export class TargetTooLong extends Error {
  override readonly name = 'TargetTooLong';
}

export class RequestTimeout extends Error {
  override readonly name = 'RequestTimeout';
}

/** Returns the bytes that Node's parser rejected, or no bytes if the error has none. */
export function packetOf(error: unknown): Buffer {
  const packet: unknown = error instanceof Error && 'rawPacket' in error ? error.rawPacket : undefined;
  return Buffer.isBuffer(packet) ? packet : Buffer.alloc(0);
}
