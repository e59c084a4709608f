import type { FastifyReply } from 'fastify';
import { type BatchedResponse, responseOf } from './batched-response.ts';
import { ClientGone } from './error-response.ts';

/** Max bytes in one write to a response. */
export const PIECE_BYTES = 64 * 1024;

/** Divides a body into pieces for `sendPieces`. */
export function* inPieces(bytes: Buffer): Generator<Buffer> {
  for (let from = 0; from < bytes.length; from += PIECE_BYTES) yield bytes.subarray(from, from + PIECE_BYTES);
}

/**
 * Sends a body in pieces. Requests each piece only after the kernel has accepted the previous one. For a client that does not
 * read, only one piece is in memory. All pieces may share one buffer. Resolves when the first piece is there, and rejects if it
 * cannot be produced, so that the client gets an error response. If a later piece cannot be produced, the headers are already
 * sent, so the connection is closed in the middle of the body.
 */
export async function sendPieces(
  reply: FastifyReply,
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
): Promise<void> {
  const iterator =
    Symbol.asyncIterator in pieces ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  const first = await iterator.next();
  const response = responseOf(reply);
  reply.hijack();
  response.statusCode = reply.statusCode;
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) response.setHeader(name, value);
  }
  writeAll(response, first, iterator).catch((error: unknown) => {
    if (error instanceof ClientGone) response.destroy();
    else response.breakOff(error);
  });
}

async function writeAll(
  response: BatchedResponse,
  first: IteratorResult<Buffer>,
  rest: Iterator<Buffer> | AsyncIterator<Buffer>,
): Promise<void> {
  // Rejects the pending write when the response closes. `Promise.race` with one promise for the whole
  // response would keep one callback per piece in memory.
  let rejectPiece: ((error: ClientGone) => void) | undefined;
  const onClose = (): void => rejectPiece?.(new ClientGone());
  response.once('close', onClose);
  for (let next = first; next.done !== true; next = await rest.next()) {
    const piece = next.value;
    await new Promise<void>((resolve, reject) => {
      rejectPiece = reject;
      response.write(piece, (error) => {
        if (error === null || error === undefined) resolve();
        else reject(new ClientGone({ cause: error }));
      });
    });
  }
  response.off('close', onClose);
  response.end();
}
