import { ErrorCode } from './error-codes.ts';
import { PlantStoreError } from './plant-store-error.ts';

/** Status, request id and headers of a response. */
export interface ResponseInfo {
  readonly status: number;
  /** The id of the request in the log of the service. */
  readonly requestId: string | undefined;
  readonly headers: Headers;
}

/** A complete response. */
export interface Answer {
  readonly info: ResponseInfo;
  readonly text: string;
  /** The parsed body; undefined if it is not JSON. */
  readonly json: unknown;
}

/** Reads a response to its end. */
export async function answerOf(response: Response): Promise<Answer> {
  const { status, headers } = response;
  const text = await response.text();
  const requestId = headers.get('x-request-id') ?? undefined;
  return { info: { status, requestId, headers }, text, json: parsed(text) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the error for a response, or undefined for a success. `target` is the method and URL of the
 * request. If `isGone` is true, the error `noSuchPlant` counts as a success.
 */
export function errorOf(
  answer: Answer,
  target: string,
  unknownBefore: boolean,
  isGone: boolean,
): PlantStoreError | undefined {
  const { status, headers } = answer.info;
  if (status >= 200 && status < 300) return undefined;
  // Handles redirects. In browsers, a redirect has the status 0 and no visible headers.
  if (status < 400) {
    const place = headers.get('location');
    const message = `${target} was redirected${place ? ` to ${place}` : ''}; fix the option url`;
    return failed(message, answer, unknownBefore);
  }
  const body: object = Object(answer.json);
  const code: unknown = Reflect.get(body, 'error');
  const message: unknown = Reflect.get(body, 'message');
  // Gateways have errors of this form too. The codes of a Plant Store begin with the status.
  if (typeof code !== 'number' || Math.floor(code / 100) !== status || typeof message !== 'string') {
    return unexpected(answer, unknownBefore || status >= 500);
  }
  if (isGone && code === ErrorCode.noSuchPlant) return undefined;
  return failed(message, answer, unknownBefore || code === ErrorCode.storeUnavailable, code);
}

/** Returns the error for a response that cannot come from a Plant Store. */
export function unexpected(answer: Answer, outcomeUnknown = true): PlantStoreError {
  const begin = answer.text.slice(0, 100);
  return failed(
    `the answer is not that of a Plant Store; is the url right? It begins: ${begin}`,
    answer,
    outcomeUnknown,
  );
}

function failed(message: string, { info }: Answer, outcomeUnknown: boolean, code?: number): PlantStoreError {
  return new PlantStoreError(message, { ...info, status: info.status || undefined, outcomeUnknown, code });
}
