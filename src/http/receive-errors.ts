/** The request line is longer than request line and headers may be together. */
export class TargetTooLong extends Error {
  override readonly name = 'TargetTooLong';
}

/** The request did not arrive in time. */
export class RequestTimeout extends Error {
  override readonly name = 'RequestTimeout';
}

/** The bytes that Node's parser failed in; empty when there are none. */
export function packetOf(error: unknown): Buffer {
  const packet: unknown = error instanceof Error && 'rawPacket' in error ? error.rawPacket : undefined;
  return Buffer.isBuffer(packet) ? packet : Buffer.alloc(0);
}
