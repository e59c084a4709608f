import { mintSecret } from '../../../src/token.ts';

/**
 * The next action of one connection of an attack. In texts, `{token}`, `{guess}`, `{forged}`, `{n}` and `{id}` are
 * replaced (see `fillIn`).
 */
export type Step =
  /** Sends a text, one byte per character, several times without waiting for responses. */
  | { readonly send: string; readonly times?: number }
  /** Sends a text byte by byte, and then `x` forever. */
  | { readonly trickle: string; readonly everyMs: number }
  /** Sends a text repeatedly, as fast as the service reads it. */
  | { readonly flood: string }
  | { readonly wait: number }
  /** Waits until this many final responses have started since the last such step. */
  | { readonly answers: number }
  | { readonly leave: 'FIN' | 'RST' };

export interface Script {
  readonly steps: readonly Step[];
  /** Restarts when it is done: on the same connection, or on a new one. */
  readonly repeats?: 'on the connection' | 'on a new connection';
}

/** Reads everything, nothing, or a number of bytes per second for some seconds and then everything. */
export type Reading = 'all' | 'nothing' | { readonly perSecond: number; readonly forSeconds: number };

/** Number of plants of the attacking owner. */
export interface Stock {
  readonly plants: number;
  readonly nameLength: number;
}

/** Max values of the figures; figures without a bound are not judged. */
export interface Bounds {
  /** Min number of requests of the other clients. */
  readonly samples: number;
  /** Response times of the other clients, of their requests and of `/live`, in milliseconds. */
  readonly p99Ms: number;
  readonly longestMs: number;
  /** Failed requests of the other clients. */
  readonly failures: number;
  /** Growth of resident memory from before the attack to its peak, in bytes. */
  readonly memory: number;
  /** Duration of a stop, with the attackers still connected if there are any. */
  readonly stopMs: number;
  /** Time until the service has closed every attacking connection. */
  readonly closedMs?: number;
  /** Bytes that the service reads. */
  readonly readBytes?: number;
  /** The only statuses that attackers may receive. */
  readonly statuses?: readonly number[];
  /** Exact number of final responses per connection. */
  readonly answersEach?: number;
  /** True if every connection must receive one complete response. */
  readonly isWhole?: true;
  /** Time after the attack until CPU use is back to the level before it. */
  readonly idleMs?: number;
  /** True if the plants of the attacking owner must be unchanged. */
  readonly isUnchanged?: true;
}

/** One row of the catalogue. */
export interface Attack {
  readonly name: string;
  readonly about: string;
  /** The limits of the service that the attack tests, and the bounds that break when a limit is removed. */
  readonly guards: string;
  readonly connections: number;
  /** The connections come from so many loopback addresses; one by default. */
  readonly addresses?: number;
  /** The connections take these in rotation. */
  readonly sends: readonly Script[];
  readonly reads: Reading;
  /**
   * Duration from the time when all its connections are made, or have taken as long. Shorter if all of them end
   * earlier.
   */
  readonly seconds: number;
  readonly bounds: Partial<Bounds>;
  /** Seconds for which the other clients are measured after it. */
  readonly watchSeconds?: number;
  readonly stock?: Stock;
  /** Variables of the service, in addition to the defaults. */
  readonly env?: Readonly<Record<string, string>>;
  readonly port?: 'admin';
  /** The tokens of the attackers and of the other clients are JWTs of an identity provider. */
  readonly hasProvider?: true;
  /** TCP connections to a TLS port. */
  readonly rawToTls?: true;
  /** An event of the service during the attack. */
  readonly event?: Event;
  /** Runs on both engines, since the engine matters. */
  readonly bothEngines?: boolean;
  /** Also runs against a bare node:http server. */
  readonly bare?: true;
  /** The differences of the short form; a row without it has no short form. */
  readonly short?: Partial<Omit<Attack, 'name' | 'about' | 'guards' | 'short'>>;
}

export type Event =
  /** SIGTERM after this time. */
  | { readonly kind: 'stop'; readonly afterMs: number }
  /** SIGSTOP after this time, SIGCONT later. The other clients pause. */
  | { readonly kind: 'suspend'; readonly afterMs: number; readonly forMs: number }
  /** Its standard output is not read during the attack. */
  | { readonly kind: 'unread output' };

/** The job of the attacking process. */
export interface Job {
  readonly url: string;
  readonly token: string;
  readonly attack: Attack;
}

/** The result of the job. */
export interface AttackReport {
  readonly connected: number;
  /** Connections that could not be opened. */
  readonly failed: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** The count of each status in final responses. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Complete responses, where each connection gets one. */
  readonly whole: number;
  /** Connections that the service closed, as seen by the attackers, and when the last one closed. */
  readonly closed: number;
  readonly lastClosedMs: number;
}

/** Ids of the plants of `fillStore` (test/long/long-list.ts), spread over the whole range. */
function idOfPlant(number: number, plants: number): bigint {
  return (
    (BigInt(number % plants) - BigInt(Math.trunc(plants / 2))) * (9_000_000_000_000_000_000n / BigInt(plants))
  );
}

function forge(jwt: string, jti: number): string {
  const [header = '', claims = '', signature = ''] = jwt.split('.');
  const changed = { ...JSON.parse(Buffer.from(claims, 'base64url').toString()), jti };
  return `${header}.${Buffer.from(JSON.stringify(changed)).toString('base64url')}.${signature}`;
}

/** Names of texts that are replaced again each time. */
export const VARIABLES = /\{(?:guess|forged|n|id)\}/;

/**
 * Replaces `{token}`, `{guess}` (a new token that is unknown and well-formed), `{forged}` (the token, a JWT, with new
 * claims under its signature), `{n}` (a unique number of nine digits) and `{id}` (the id of the nth existing plant).
 */
export function fillIn(text: string, token: string, number: number, plants: number): string {
  return text
    .replaceAll('{token}', token)
    .replaceAll('{guess}', mintSecret)
    .replaceAll('{forged}', () => forge(token, number))
    .replaceAll('{n}', String(number).padStart(9, '0'))
    .replaceAll('{id}', () => String(idOfPlant(number, plants)));
}
