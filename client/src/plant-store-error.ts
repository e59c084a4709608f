/** The facts about a failed call; its members are those of PlantStoreError. */
export interface Failure {
  readonly error?: number | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  readonly outcomeUnknown: boolean;
  readonly cause?: unknown;
}

/** A failed call: the service rejected it, or no response came. */
export class PlantStoreError extends Error {
  override readonly name = 'PlantStoreError';
  /** The error code of the service, such as 40002. Undefined when no response came, or it is from another program. */
  readonly error: number | undefined;
  /** The HTTP status; undefined without a response. */
  readonly status: number | undefined;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  /** True when the call may have been executed: an attempt got no response, or a 503 that says so. */
  readonly outcomeUnknown: boolean;

  constructor(message: string, { error, status, requestId, outcomeUnknown, cause }: Failure) {
    super(message, cause === undefined ? undefined : { cause });
    this.error = error;
    this.status = status;
    this.requestId = requestId;
    this.outcomeUnknown = outcomeUnknown;
  }
}
