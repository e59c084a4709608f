import type { RequestListener } from 'node:http';
import type { BatchedResponse } from '../../batched-response.ts';
import type { RawResponse } from '../../error-response.ts';

/** Max bytes to read and discard on a connection that will be closed (RFC 9112 §9.6). */
export const MAX_DISCARDED_BYTES = 65_536;
/**
 * Ticks after which an incomplete request or TLS handshake, or a response that is not read, may be closed for a new
 * connection. Most clients need less time.
 */
export const STALLED_TICKS = 2;

/** A connection whose input can be rejected. */
export interface InputHolder {
  /** Address of the client, or of the proxy that forwards its requests. */
  readonly address: string | undefined;
  readonly waitsForClient: boolean;
  rejectInput(): void;
}

export interface HttpConnectionOptions {
  /** Max bytes of the request line and headers together. */
  readonly maxHeaderBytes: number;
  /** Timeouts, in ticks of about a second. Time for which the process is suspended does not count. */
  readonly timeouts: Readonly<Record<'headers' | 'request' | 'idle' | 'write', number>>;
  readonly handle: RequestListener<never, never>;
  /** True for TLS. Each read of the socket is then a record. */
  readonly isTls: boolean;
  /**
   * Returns undefined if bytes of the next request from this address may be parsed now, otherwise a promise that
   * resolves when they may.
   */
  readonly waitToParse: (address: string | undefined) => Promise<void> | undefined;
  /** The same for the error response to a connection from this address. */
  readonly waitToReject: (address: string | undefined) => Promise<void> | undefined;
  /** Called once for each dispatched request, after its response was sent or its connection was lost. */
  readonly onClosed: (response: BatchedResponse) => void;
  /** Called when the connection has become idle again after a request. */
  readonly onIdle: () => void;
  /** Called with the counted bytes of the connection's input when they change. May call `rejectInput`. */
  readonly onInputCounted: (connection: InputHolder, bytes: number) => void;
  /** Logs and counts an error that belongs to no request, and returns its response. */
  readonly reportRejection: (error: unknown) => RawResponse;
}
