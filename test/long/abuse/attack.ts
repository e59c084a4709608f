/** What one connection of an attack does next. In texts, `{token}`, `{n}` and `{id}` are filled in (see `fillIn`). */
export type Step =
  /** Sends a text, as one byte a character, some times in a row without waiting for answers. */
  | { readonly send: string; readonly times?: number }
  /** Sends a text byte by byte, and then `x` for ever. */
  | { readonly trickle: string; readonly everyMs: number }
  /** Sends a text again and again, as fast as the service reads it. */
  | { readonly flood: string }
  | { readonly wait: number }
  /** Waits until that many final responses have begun to arrive since the last such step. */
  | { readonly answers: number }
  | { readonly leave: 'FIN' | 'RST' };

export interface Script {
  readonly steps: readonly Step[];
  /** Begins again when it is done: on the same connection, or on a new one. */
  readonly repeats?: 'on the connection' | 'on a new connection';
}

/** Everything, nothing, or some bytes a second for some seconds and then everything. */
export type Reading = 'all' | 'nothing' | { readonly perSecond: number; readonly forSeconds: number };

/** Plants of the owner who attacks. */
export interface Stock {
  readonly plants: number;
  readonly nameLength: number;
}

/** Each figure must stay below its bound; one that is left out is not judged. */
export interface Bounds {
  /** Requests of the other clients; the figure must reach this one. */
  readonly samples: number;
  /** Waits of the other clients for their responses and for `/live`, in milliseconds. */
  readonly p99Ms: number;
  readonly longestMs: number;
  /** Requests of the other clients that got anything but a success. */
  readonly failures: number;
  /** Growth of the resident memory from before the attack to its peak, in bytes. */
  readonly memory: number;
  /** How long a stop takes, with the attackers still connected if there are any. */
  readonly stopMs: number;
  /** When the service has closed every attacking connection. */
  readonly closedMs?: number;
  /** Bytes that the service reads. */
  readonly readBytes?: number;
  /** The only statuses that attackers may get. */
  readonly statuses?: readonly number[];
  /** Final responses for each connection, no more and no fewer. */
  readonly answersEach?: number;
  /** Every connection gets one response, to its last byte. */
  readonly isWhole?: true;
  /** CPU use is back to that before the attack so long after it. */
  readonly idleMs?: number;
  /** The plants of the owner who attacks are the same afterwards. */
  readonly isUnchanged?: true;
}

/** One row of the catalogue. */
export interface Attack {
  readonly name: string;
  readonly about: string;
  /** The limits of the service that it needs, and the bounds that break when one of them is taken away. */
  readonly guards: string;
  readonly connections: number;
  /** The connections take these in turns. */
  readonly sends: readonly Script[];
  readonly reads: Reading;
  /** How long it lasts, unless all its connections end earlier. */
  readonly seconds: number;
  readonly bounds: Partial<Bounds>;
  /** How long the others are watched after it. */
  readonly watchSeconds?: number;
  readonly stock?: Stock;
  /** Variables of the service, in addition to the defaults. */
  readonly env?: Readonly<Record<string, string>>;
  readonly port?: 'admin';
  /** TCP connections to a service that speaks TLS. */
  readonly rawToTls?: true;
  /** Something that happens to the service during the attack. */
  readonly event?: Event;
  /** The engine matters: it runs on both. */
  readonly bothEngines?: boolean;
  /** Runs against a bare server of node:http as well. */
  readonly bare?: true;
  /** What is different in the short form; a row without it is not part of that. */
  readonly short?: Partial<Omit<Attack, 'name' | 'about' | 'guards' | 'short'>>;
}

export type Event =
  /** SIGTERM after so long. */
  | { readonly kind: 'stop'; readonly afterMs: number }
  /** SIGSTOP after so long, SIGCONT later. The others pause. */
  | { readonly kind: 'suspend'; readonly afterMs: number; readonly forMs: number }
  /** Nobody reads its standard output from the beginning of the attack to its end. */
  | { readonly kind: 'unread output' };

/** What the process that attacks is to do. */
export interface Job {
  readonly url: string;
  readonly token: string;
  readonly attack: Attack;
}

/** What became of it. */
export interface AttackReport {
  readonly connected: number;
  /** Connections that could not be opened. */
  readonly failed: number;
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** How often each status came in final responses. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Responses of which the last byte came, where each connection gets one. */
  readonly whole: number;
  /** Connections that the service closed, as far as the attackers saw, and when the last of them. */
  readonly closed: number;
  readonly lastClosedMs: number;
}

/** Ids of the plants of `fillStore` (test/long/long-list.ts), which spread over the whole range. */
function idOfPlant(number: number, plants: number): bigint {
  return (
    (BigInt(number % plants) - BigInt(Math.trunc(plants / 2))) * (9_000_000_000_000_000_000n / BigInt(plants))
  );
}

/** Fills in `{token}`, `{n}` (nine digits that no other has) and `{id}` (of the nth plant of the stock). */
export function fillIn(text: string, token: string, number: number, plants: number): string {
  return text
    .replaceAll('{token}', token)
    .replaceAll('{n}', String(number).padStart(9, '0'))
    .replaceAll('{id}', () => String(idOfPlant(number, plants)));
}
