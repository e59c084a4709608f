import type { FastifyReply, FastifyRequest } from 'fastify';
import { type BatchedResponse, responseOf } from './batched-response.ts';
import { ClientGone } from './operation.ts';

/** Callbacks of the application for responses that are sent in pieces. */
interface PieceHooks {
  /** Adds headers that depend on the request and on the state of the service. */
  readonly completeHeaders: (request: FastifyRequest, reply: FastifyReply) => void;
  /**
   * Called when a piece could not be produced. The headers are already sent, so the connection is closed in
   * the middle of the body.
   */
  readonly onBrokenOff: (request: FastifyRequest, error: unknown) => void;
}

/** Max bytes in one write to a response. */
export const PIECE_BYTES = 64 * 1024;

/** Divides a body into pieces for `SendPieces`. */
export function* inPieces(bytes: Buffer): Generator<Buffer> {
  for (let from = 0; from < bytes.length; from += PIECE_BYTES) yield bytes.subarray(from, from + PIECE_BYTES);
}

export type SendPieces = (
  request: FastifyRequest,
  reply: FastifyReply,
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
) => void;

/**
 * Returns a function that sends a body in pieces. The function requests each piece only after the kernel has
 * accepted the previous piece. For a client that does not read, only one piece is in memory. All pieces may
 * share one buffer.
 */
export function createSendPieces({ completeHeaders, onBrokenOff }: PieceHooks): SendPieces {
  return (request, reply, pieces) => {
    const response = responseOf(reply);
    completeHeaders(request, reply);
    reply.hijack();
    response.statusCode = reply.statusCode;
    for (const [name, value] of Object.entries(reply.getHeaders())) {
      if (value !== undefined) response.setHeader(name, value);
    }
    writeAll(response, pieces).catch((error: unknown) => {
      if (!(error instanceof ClientGone)) onBrokenOff(request, error);
      response.destroy();
    });
  };
}

async function writeAll(
  response: BatchedResponse,
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
): Promise<void> {
  // Rejects the pending write when the response closes. `Promise.race` with one promise for the whole
  // response would keep one callback per piece in memory.
  let rejectPiece: ((error: ClientGone) => void) | undefined;
  const onClose = (): void => rejectPiece?.(new ClientGone('the client is gone'));
  response.once('close', onClose);
  for await (const piece of pieces) {
    if (response.destroyed) throw new ClientGone('the client is gone');
    await new Promise<void>((resolve, reject) => {
      rejectPiece = reject;
      response.write(piece, (error) => {
        if (error === null || error === undefined) resolve();
        else reject(new ClientGone('the client is gone', { cause: error }));
      });
    });
  }
  response.off('close', onClose);
  response.end();
}
