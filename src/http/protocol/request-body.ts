import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { ApiError } from '../../api-errors.ts';
import { responseOf } from '../batched-response.ts';
import { countOf } from '../header-names.ts';
import { ownerOf } from '../operation.ts';
import { faultOfTrailers } from './http-conformance.ts';

/** Bytes of a body whose memory is not counted, so that small bodies are always accepted. */
export const UNCOUNTED_BYTES = 4 * 1024;

/**
 * Matches the media type application/json with any parameters (RFC 9110 §8.3.1). Each character can match in one way
 * only, so that the time is linear.
 */
const JSON_TYPE =
  /^application\/json(?:[ \t]*;(?:[ \t]*[\w!#$%&'*+.^`|~-]+=(?:[\w!#$%&'*+.^`|~-]+|"(?:[^"\\]|\\.)*"))?)*[ \t]*$/i;

/**
 * Returns a hook that waits until the whole request has arrived: headers, body and trailers. Sets
 * `request.body` to the bytes of the body if the operation reads it and it is not empty. Checks the headers
 * first: Expect (417), Content-Encoding and Content-Type (415), Content-Length (413), and the size of each chunk when it
 * arrives. `limit` is the max size of a body in bytes. `countMemory` counts the memory of bodies that arrive in parts, by
 * owner; it throws above its limits.
 */
export function receiveBody(limit: number, countMemory: (owner: string, bytes: number) => void) {
  // Closes the connection even if the whole body has arrived.
  const tooLarge = new ApiError(41300, `the body is larger than ${limit} bytes`, { connection: 'close' });

  return (
    request: FastifyRequest,
    reply: FastifyReply,
    _payload: unknown,
    done: HookHandlerDoneFunction,
  ): void => {
    const { raw, headers } = request;
    const response = responseOf(reply);
    const isEmpty = response.bodyBytes === 0 && headers['transfer-encoding'] === undefined;
    const awaitsContinue = expectsContinue(request);
    checkBytes(request, 0, response.bodyBytes);
    // An HTTP/1.0 client does not wait for 100 Continue and gets none.
    if (awaitsContinue && raw.httpVersionMinor > 0) response.writeContinue();
    if (raw.complete && !isEmpty) {
      const body = readAll(raw);
      if (isRead(request)) request.body = body;
    }
    if (raw.complete || isEmpty) done();
    else collect(request, reply, done);
  };

  function collect(request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void {
    const response = responseOf(reply);
    if (response.receiveError !== undefined) throw response.receiveError;
    const { raw } = request;
    const isChunked = request.headers['transfer-encoding'] !== undefined;
    const isKept = isRead(request);
    const maxLength = isChunked ? limit : response.bodyBytes;
    let body = Buffer.alloc(0);
    let held = 0;
    let size = 0;

    function finish(error?: unknown): void {
      raw.off('data', onData);
      raw.off('end', onEnd);
      response.onReceiveError = undefined;
      response.onBodyParsed = undefined;
      if (error instanceof Error) done(error);
      else authenticateAgain(request, reply).then(() => done(), done);
    }

    function onBodyParsed(bytesBefore: number): void {
      try {
        const fault = raw.complete ? faultOfTrailers(raw) : undefined;
        if (fault !== undefined) throw fault;
        checkBytes(request, bytesBefore, response.bodyBytes);
      } catch (error: unknown) {
        finish(error);
      }
    }

    function onData(piece: Buffer): void {
      try {
        if (isKept) keep(piece);
        size += piece.length;
      } catch (error: unknown) {
        finish(error);
      }
    }

    function keep(piece: Buffer): void {
      const needed = size + piece.length;
      if (needed > body.length) {
        const length = Math.max(needed, Math.min(2 * body.length, maxLength));
        hold(length);
        const larger = Buffer.alloc(length);
        body.copy(larger);
        body = larger;
      }
      piece.copy(body, size);
    }

    /** Counts the memory of this body until the response closes. Throws if bodies have too much. */
    function hold(bytes: number): void {
      const owner = ownerOf(request);
      const counted = Math.max(0, bytes - UNCOUNTED_BYTES);
      if (counted === 0) return;
      countMemory(owner, counted - held);
      if (held === 0) response.once('close', () => countMemory(owner, -held));
      held = counted;
    }

    function onEnd(): void {
      if (body.length > 0) request.body = body.subarray(0, size);
      finish();
    }

    raw.on('data', onData);
    raw.on('end', onEnd);
    response.onReceiveError = finish;
    response.onBodyParsed = onBodyParsed;
    response.acceptBody();
  }

  /** Checks the type of a body when it is known not to be empty, and its size whenever that has grown. */
  function checkBytes(request: FastifyRequest, before: number, now: number): void {
    if (before === 0 && now > 0) checkContent(request);
    if (now > limit) throw tooLarge;
  }
}

/** Reads the body of a request that has arrived. Returns undefined for an empty one, which counts as none. */
function readAll(raw: IncomingMessage): Buffer | undefined {
  // One call returns all bytes on Node 24, but those of one chunk on Node 26.
  const first: unknown = raw.read();
  if (!Buffer.isBuffer(first)) return undefined;
  const pieces = [first];
  while (raw.readableLength > 0) pieces.push(raw.read());
  return pieces.length === 1 ? first : Buffer.concat(pieces);
}

/** True if the operation of a request reads its body. */
function isRead({ routeOptions }: FastifyRequest): boolean {
  return routeOptions.config?.readsBody === true;
}

/** Checks the token of a request again: it may have been revoked since the headers arrived. */
function authenticateAgain(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return new Promise((resolve, reject) => {
    const authenticate = request.routeOptions.config?.authenticate;
    if (authenticate === undefined) resolve();
    else authenticate(request, reply, (error) => (error === undefined ? resolve() : reject(error)));
  });
}

/**
 * True if the client waits for 100 Continue. Throws an ApiError (41700) if `Expect` has a value other than 100-continue
 * (RFC 9110 §10.1.1).
 */
function expectsContinue({ headers: { expect } }: FastifyRequest): boolean {
  if (expect === undefined) return false;
  const members = expect.split(',').map((member) => member.trim().toLowerCase());
  const expectations = members.filter((member) => member !== '');
  if (expectations.every((expectation) => expectation === '100-continue')) return expectations.length > 0;
  throw new ApiError(41700, 'the only supported `Expect` value is 100-continue');
}

function checkContent({ headers, raw }: FastifyRequest): void {
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity')
    throw new ApiError(41500, 'the body must not be encoded; send it without Content-Encoding');
  const type = headers['content-type'];
  const isJson = type === 'application/json' || (type !== undefined && JSON_TYPE.test(type));
  if (countOf(raw.rawHeaders, 'content-type') > 1)
    throw new ApiError(41500, 'send one Content-Type header only, with application/json');
  if (!isJson)
    throw new ApiError(
      41500,
      'the body must have the type JSON; send it with Content-Type: application/json',
    );
}
