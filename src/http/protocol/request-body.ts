import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { type BatchedResponse, responseOf } from '../batched-response.ts';
import { countOf } from '../header-count.ts';

/** Each piece that the parser makes of a body costs microseconds: so many, and one more for so many bytes. */
const MIN_PIECES = 512;
const BYTES_OF_PIECE = 128;

/**
 * A hook that lets a request pass when all of it has arrived: headers, body, trailers. `request.body` is then its body,
 * or undefined without one. What is checked before a byte of it is read: Expect (417), Content-Encoding and Content-Type
 * (415), Content-Length (413); `limit` is in bytes, whatever the framing.
 */
export function receiveBody(limit: number) {
  // Whether all of it has arrived depends on the network, so the connection closes in either case.
  const closes = { connection: 'close' };
  const tooLarge = new ApiError(41300, `the body is larger than ${limit} bytes`, closes);
  const tooManyPieces = new ApiError(
    41300,
    'the body comes in too many small chunks; send larger ones',
    closes,
  );

  return (
    request: FastifyRequest,
    reply: FastifyReply,
    _payload: unknown,
    done: HookHandlerDoneFunction,
  ): void => {
    const { raw, headers } = request;
    const length = headers['content-length'];
    const isChunked = headers['transfer-encoding'] !== undefined;
    const response = responseOf(reply);
    const isEmpty = !isChunked && (length === undefined || Number(length) === 0);
    checkExpectation(request);
    if (!isChunked && !isEmpty) {
      checkContent(request);
      if (Number(length) > limit) throw tooLarge;
    }
    // An HTTP/1.0 client does not wait for it.
    if (headers.expect !== undefined && raw.httpVersionMinor > 0) response.writeContinue();
    if (raw.complete && !isEmpty) request.body = checkedBody(request, readAll(raw));
    if (raw.complete || isEmpty) done();
    else collect(request, response, done);
  };

  function collect(request: FastifyRequest, response: BatchedResponse, done: HookHandlerDoneFunction): void {
    if (response.receiveError !== undefined) throw response.receiveError;
    const { raw } = request;
    let body = Buffer.alloc(0);
    let size = 0;
    let pieces = 0;

    function finish(error?: unknown): void {
      raw.off('data', onData);
      raw.off('end', onEnd);
      response.onReceiveError = undefined;
      if (error instanceof Error) done(error);
      else done();
    }

    function onData(piece: Buffer): void {
      pieces += 1;
      try {
        if (size === 0) checkContent(request);
        if (size + piece.length > limit) throw tooLarge;
        if (pieces > MIN_PIECES + size / BYTES_OF_PIECE) throw tooManyPieces;
        if (size + piece.length > body.length) body = grown(body, size + piece.length);
        size += piece.copy(body, size);
      } catch (error: unknown) {
        finish(error);
      }
    }

    function onEnd(): void {
      if (size > 0) request.body = body.subarray(0, size);
      finish();
    }

    raw.on('data', onData);
    raw.on('end', onEnd);
    response.onReceiveError = finish;
  }

  /** An empty body of any framing is no body. */
  function checkedBody(request: FastifyRequest, chunks: readonly Buffer[]): Buffer | undefined {
    const [first] = chunks;
    if (first === undefined) return undefined;
    const body = chunks.length === 1 ? first : Buffer.concat(chunks);
    checkContent(request);
    if (body.length > limit) throw tooLarge;
    return body;
  }
}

/** What has arrived of a message that is complete. */
function readAll(message: IncomingMessage): readonly Buffer[] {
  const chunks: Buffer[] = [];
  for (;;) {
    const chunk: unknown = message.read();
    if (!Buffer.isBuffer(chunk)) return chunks;
    chunks.push(chunk);
  }
}

/** A buffer for at least so many bytes, with the old ones in it. */
function grown(buffer: Buffer, bytes: number): Buffer<ArrayBuffer> {
  const larger = Buffer.alloc(Math.max(bytes, 2 * buffer.length));
  buffer.copy(larger);
  return larger;
}

/** RFC 9110 §10.1.1: the field is a list, and 417 is for members that are not met. */
function checkExpectation({ headers: { expect } }: FastifyRequest): void {
  if (expect === undefined) return;
  const members = expect.toLowerCase().split(',');
  if (members.every((member) => ['', '100-continue'].includes(member.trim()))) return;
  throw new ApiError(41700, 'the only expectation met here is 100-continue');
}

function checkContent({ headers, raw }: FastifyRequest): void {
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity')
    throw new ApiError(41500, 'the body must be sent as it is, without Content-Encoding');
  const type = headers['content-type'];
  const isJson =
    type === 'application/json' || type?.split(';', 1)[0]?.trim().toLowerCase() === 'application/json';
  if (!isJson || countOf(raw.rawHeaders, 'content-type') > 1)
    throw new ApiError(41500, 'the Content-Type must be application/json, in one header');
}
