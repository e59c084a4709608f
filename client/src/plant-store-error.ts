import type { ErrorCode } from './error-codes.ts';

/** The facts about a failed call; its members are those of PlantStoreError. */
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
  /** The code of the service. Undefined when no response came, or it is from another program. */
  readonly code: ErrorCode | (number & Record<never, never>) | undefined;
  /** The HTTP status. Undefined without a response, or if the platform hides it, as browsers do for redirects. */
  readonly status: number | undefined;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  /** The headers of the response, such as `Retry-After`. */
  readonly headers: Headers | undefined;
  /** True when the call may have been executed: an attempt got no response, or a 503 that says so. */
  readonly outcomeUnknown: boolean;

  constructor(message: string, { code, status, requestId, headers, outcomeUnknown, cause }: Failure) {
    super(message, cause ? { cause } : undefined);
    this.code = code;
    this.status = status;
    this.requestId = requestId;
    this.headers = headers;
    this.outcomeUnknown = outcomeUnknown;
  }

  /** `instanceof` by name: a program that both imports and requires the package has this class twice. */
  static override [Symbol.hasInstance](value: unknown): value is PlantStoreError {
    return value instanceof Error && value.name === NAME;
  }
}
