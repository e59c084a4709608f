import type { ErrorCode } from './error-codes.ts';
import { printable } from './safe-text.ts';

/** The data of a failed call. PlantStoreError has properties with the same names and meanings. */
export interface Failure {
  readonly code?: number | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  readonly headers?: Headers | undefined;
  readonly outcomeUnknown: boolean;
  readonly cause?: unknown;
}

const NAME = 'PlantStoreError';

/**
 * A failed call: the service rejected it, or no response came.
 *
 * @example
 * ```ts
 * import { type Client, ErrorCode, PlantStoreError } from 'plant-store-client';
 *
 * async function createOnce(client: Client): Promise<void> {
 *   try {
 *     await client.createPlant({ id: 7, name: 'Alder' });
 *   } catch (failure: unknown) {
 *     if (!(failure instanceof PlantStoreError) || failure.code !== ErrorCode.idTaken) throw failure;
 *   }
 * }
 * ```
 */
export class PlantStoreError extends Error {
  override readonly name = NAME;
  /**
   * The error code in the response. Undefined if no response came, or if another program, such as a proxy,
   * sent the response.
   */
  readonly code: ErrorCode | (number & Record<never, never>) | undefined;
  /** The HTTP status. Undefined without a response, or if the platform hides it, as browsers do for redirects. */
  readonly status: number | undefined;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  /** The headers of the response, such as `Retry-After`. */
  readonly headers: Headers | undefined;
  /**
   * True if the service may have executed the call. Examples: no response after the request was sent, or a
   * 503 with the code `storeUnavailable`.
   */
  readonly outcomeUnknown: boolean;
  /** The error of the token function, or a copy of the error of `fetch`. TypeScript's Error has it from ES2022 on. */
  declare readonly cause?: unknown;

  constructor(message: string, { code, status, requestId, headers, outcomeUnknown, cause }: Failure) {
    super(printable(message), cause ? { cause } : undefined);
    this.code = code;
    this.status = status;
    this.requestId = requestId;
    this.headers = headers;
    this.outcomeUnknown = outcomeUnknown;
  }

  /**
   * Makes `instanceof PlantStoreError` compare the error name. A program that both imports and requires the package
   * loads this class twice, so comparing classes could fail. Subclasses are compared as usual. Returns `boolean`: a type
   * predicate would narrow an instance of a subclass to PlantStoreError only.
   */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: subclasses inherit the method, and must not match by this name
    if (this !== PlantStoreError) return super[Symbol.hasInstance](value);
    return value instanceof Error && value.name === NAME;
  }
}
