/** What is known of a call that failed; its members are those of PlantStoreError. */
export interface Failure {
  readonly error?: number | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  readonly outcomeUnknown: boolean;
  readonly cause?: unknown;
}

/** A call that failed, for whatever reason: refused by the service, or never answered. */
export class PlantStoreError extends Error {
  override readonly name = 'PlantStoreError';
  /** The code of the service, such as 40002; undefined when something else answered, or nothing. */
  readonly error: number | undefined;
  /** The HTTP status; undefined without an answer. */
  readonly status: number | undefined;
  /** What names the request in the log of the service. */
  readonly requestId: string | undefined;
  /** Whether the call may have been carried out all the same: some try of it was sent and not answered, or got a 503 that says so. */
  readonly outcomeUnknown: boolean;

  constructor(message: string, { error, status, requestId, outcomeUnknown, cause }: Failure) {
    super(message, cause === undefined ? undefined : { cause });
    this.error = error;
    this.status = status;
    this.requestId = requestId;
    this.outcomeUnknown = outcomeUnknown;
  }
}
