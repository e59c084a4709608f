import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setPriority } from 'node:os';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { PATIENCE_MS } from '../../support/patience.ts';
import {
  type AttackReport,
  fillIn,
  type Job,
  type Reading,
  type Script,
  type Step,
  VARIABLES,
} from './attack.ts';

// The attacking process. It reads its job as a line of JSON and prints "ready". The next line starts it. It prints
// "connected" when its first connections are made, and a report at its end. It also ends with its input.

const CONNECTS_AT_ONCE = 50;
const PIECE = 64 * 1_024;
const STATUS_LINE = Buffer.from('HTTP/1.1 ');
const STATUS_LENGTH = 3;
const READS_A_SECOND = 4;
const ANSWERS_LOOK_MS = 50;
const LAST_CHUNK = Buffer.from('0\r\n\r\n');
/**
 * A lower priority than the service and the other clients, which would otherwise wait for the CPU instead of the
 * service.
 */
const NICE = 5;

class Attacker {
  readonly #job: Job;
  readonly #built = new Map<Step, Buffer>();
  readonly #open = new Set<Socket>();
  readonly #allConnected = Promise.withResolvers<void>();
  readonly #statuses: Record<string, number> = {};
  #began = 0;
  #number = 0;
  #sockets = 0;
  #isOver = false;
  #connected = 0;
  #failed = 0;
  #sent = 0;
  #received = 0;
  #whole = 0;
  #closed = 0;
  #lastClosed = 0;

  constructor(job: Job, onConnected: () => void) {
    this.#job = job;
    void this.#allConnected.promise.then(onConnected);
    for (const { steps } of job.attack.sends) for (const step of steps) this.#build(step);
  }

  async run(): Promise<AttackReport> {
    const { connections, seconds, sends } = this.#job.attack;
    this.#began = performance.now();
    const over = new AbortController();
    const wait = (ms: number): Promise<void> => setTimeout(ms, undefined, { signal: over.signal });
    const timer = Promise.race([this.#allConnected.promise, wait(PATIENCE_MS)])
      .then(() => wait(seconds * 1_000))
      .then(() => this.#awaitAnswers(wait))
      .then(
        () => this.stop(),
        () => undefined,
      );
    const running: Promise<void>[] = [];
    for (let index = 0; index < connections && !this.#isOver; index += 1) {
      const script = sends[index % sends.length];
      if (script !== undefined) running.push(this.#keepRunning(script));
      if (index % CONNECTS_AT_ONCE === CONNECTS_AT_ONCE - 1) await setTimeout(1);
    }
    await Promise.all(running);
    over.abort();
    await timer;
    return {
      connected: this.#connected,
      failed: this.#failed,
      sentBytes: this.#sent,
      receivedBytes: this.#received,
      statuses: this.#statuses,
      whole: this.#whole,
      closed: this.#closed,
      lastClosedMs: this.#lastClosed,
    };
  }

  /** Waits for all responses that the bounds demand. They may come late on a busy machine. */
  async #awaitAnswers(wait: (ms: number) => Promise<void>): Promise<void> {
    const { connections, bounds } = this.#job.attack;
    const isAnswered = (): boolean =>
      this.#whole >= (bounds.isWhole ? connections : 0) &&
      sumOf(this.#statuses) >= connections * (bounds.answersEach ?? 0);
    const deadline = performance.now() + PATIENCE_MS;
    while (!isAnswered() && performance.now() < deadline) await wait(ANSWERS_LOOK_MS);
  }

  stop(): void {
    this.#isOver = true;
    for (const socket of this.#open) socket.destroy();
  }

  /** Constant bytes are rendered once, before the attack starts. */
  #build(step: Step): void {
    if ('send' in step && !VARIABLES.test(step.send))
      this.#built.set(step, Buffer.from(this.#fill(step.send).repeat(step.times ?? 1), 'latin1'));
    if ('flood' in step) {
      const text = this.#fill(step.flood);
      this.#built.set(step, Buffer.from(text.repeat(Math.ceil(PIECE / text.length)), 'latin1'));
    }
  }

  #fill(text: string): string {
    this.#number += 1;
    return fillIn(text, this.#job.token, this.#number, this.#job.attack.stock?.plants ?? 1);
  }

  async #keepRunning(script: Script): Promise<void> {
    do await this.#runOnce(script);
    while (script.repeats === 'on a new connection' && !this.#isOver);
  }

  async #runOnce(script: Script): Promise<void> {
    const { reads } = this.#job.attack;
    const socket = this.#connect();
    const link: Link = {
      socket,
      closed: new AbortController(),
      answers: 0,
      received: 0,
      length: undefined,
      look: () => undefined,
    };
    const closing = new Promise<void>((resolve) => void socket.once('close', () => resolve()));
    void closing.then(() => link.closed.abort());
    this.#open.add(socket);
    if (reads === 'all') this.#readAll(link);
    else if (reads !== 'nothing') this.#readSlowly(link, reads);
    await this.#follow(script, link).catch(() => undefined);
    await closing;
    this.#open.delete(socket);
  }

  #connect(): Socket {
    const { url, attack } = this.#job;
    const { protocol, hostname, port } = new URL(url);
    const isTls = protocol === 'https:' && attack.rawToTls === undefined;
    const address = { host: hostname, port: Number(port), ...this.#nextSource() };
    const socket = isTls ? connectTls({ ...address, rejectUnauthorized: false }) : connect(address);
    if (attack.reads !== 'all') socket.pause();
    let isConnected = false;
    let wasReset = false;
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      isConnected = true;
      this.#connected += 1;
      this.#lookWhetherConnected();
    });
    socket.on('error', () => {
      wasReset = true;
    });
    socket.once('end', () => {
      wasReset = true;
    });
    socket.once('close', () => {
      if (!isConnected && !this.#isOver) {
        this.#failed += 1;
        this.#lookWhetherConnected();
      }
      if (!wasReset || this.#isOver) return;
      this.#closed += 1;
      this.#lastClosed = performance.now() - this.#began;
    });
    return socket;
  }

  #nextSource(): { localAddress?: string } {
    const { addresses } = this.#job.attack;
    if (addresses === undefined) return {};
    this.#sockets += 1;
    const index = this.#sockets % addresses;
    return { localAddress: `127.8.${index >> 7}.${1 + (index & 127)}` };
  }

  #lookWhetherConnected(): void {
    if (this.#connected + this.#failed === this.#job.attack.connections) this.#allConnected.resolve();
  }

  async #follow({ steps, repeats }: Script, link: Link): Promise<void> {
    do for (const step of steps) await this.#take(step, link);
    while (repeats === 'on the connection' && !link.socket.destroyed);
    if (repeats === 'on a new connection') link.socket.destroy();
  }

  async #take(step: Step, link: Link): Promise<void> {
    const { socket, closed } = link;
    if ('wait' in step) await setTimeout(step.wait, undefined, { signal: closed.signal });
    else if ('answers' in step) await awaitAnswers(link, step.answers);
    else if ('trickle' in step) await this.#trickle(step, link);
    else if ('flood' in step) {
      const bytes = this.#built.get(step) ?? Buffer.alloc(0);
      while (!socket.destroyed) await this.#write(link, bytes);
    } else if ('send' in step) await this.#send(step, link);
    else if (step.leave === 'RST') socket.resetAndDestroy();
    else socket.end();
  }

  async #send(step: { send: string; times?: number }, link: Link): Promise<void> {
    const built = this.#built.get(step);
    if (built !== undefined) await this.#write(link, built);
    else
      for (let time = 0; time < (step.times ?? 1); time += 1) {
        const texts: string[] = [];
        for (let size = 0; size < PIECE && time < (step.times ?? 1); time += 1) {
          const text = this.#fill(step.send);
          texts.push(text);
          size += text.length;
        }
        await this.#write(link, Buffer.from(texts.join(''), 'latin1'));
      }
  }

  async #trickle({ trickle, everyMs }: { trickle: string; everyMs: number }, link: Link): Promise<void> {
    const text = this.#fill(trickle);
    for (let at = 0; !link.socket.destroyed; at += 1) {
      await this.#write(link, Buffer.from(text.charAt(at) || 'x', 'latin1'));
      await setTimeout(everyMs, undefined, { signal: link.closed.signal });
    }
  }

  /** Resolves when the kernel has accepted all of it. Writes in pieces, so that the accepted bytes are known. */
  async #write({ socket, closed }: Link, bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE);
      await new Promise<void>((resolve, reject) => {
        socket.write(piece, (error) => (error ? reject(error) : resolve()));
        if (closed.signal.aborted) reject(new Error('closed'));
      });
      this.#sent += piece.length;
    }
  }

  #readAll(link: Link): void {
    link.socket.on('data', this.#reader(link));
  }

  #reader(link: Link): (data: Buffer) => void {
    let tail: Buffer = Buffer.alloc(0);
    return (data) => {
      this.#received += data.length;
      const before = link.received;
      link.received += data.length;
      link.length ??= lengthOf(data);
      if (link.length === undefined ? isLast(data) : before < link.length && link.received >= link.length)
        this.#whole += 1;
      tail = this.#countAnswers(link, tail.length === 0 ? data : Buffer.concat([tail, data]));
    };
  }

  #readSlowly(link: Link, { perSecond, forSeconds }: Exclude<Reading, string>): void {
    const { socket, closed } = link;
    const end = performance.now() + forSeconds * 1_000;
    const take = this.#reader(link);
    const timer = setInterval(() => {
      if (performance.now() < end) {
        const data: unknown = socket.read(Math.ceil(perSecond / READS_A_SECOND));
        if (Buffer.isBuffer(data)) take(data);
        return;
      }
      clearInterval(timer);
      socket.on('data', take);
      socket.resume();
    }, 1_000 / READS_A_SECOND);
    closed.signal.addEventListener('abort', () => clearInterval(timer));
  }

  /** Counts status lines and resolves the steps that wait for them. Returns the bytes that may start another one. */
  #countAnswers(link: Link, bytes: Buffer): Buffer {
    let at = bytes.indexOf(STATUS_LINE);
    for (; at >= 0; at = bytes.indexOf(STATUS_LINE, at + 1)) {
      const start = at + STATUS_LINE.length;
      if (start + STATUS_LENGTH > bytes.length) break;
      const status = bytes.toString('latin1', start, start + STATUS_LENGTH);
      if (!/^[2-5]\d\d$/.test(status)) continue;
      this.#statuses[status] = (this.#statuses[status] ?? 0) + 1;
      link.answers += 1;
    }
    link.look();
    if (at >= 0) return Buffer.from(bytes.subarray(at));
    return Buffer.from(bytes.subarray(-Math.min(bytes.length, STATUS_LINE.length - 1)));
  }
}

interface Link {
  readonly socket: Socket;
  readonly closed: AbortController;
  answers: number;
  received: number;
  /** Length of the first response with its headers, if its headers state it. */
  length: number | undefined;
  look: () => void;
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Returns the length of a response with its headers, if its first bytes contain these and state it. */
function lengthOf(first: Buffer): number | undefined {
  const end = first.indexOf('\r\n\r\n');
  const [, length] = /\r\ncontent-length: (\d+)/i.exec(first.toString('latin1', 0, Math.max(end, 0))) ?? [];
  return length === undefined ? undefined : end + 4 + Number(length);
}

/** The last chunk of a streamed response. */
function isLast(bytes: Buffer): boolean {
  return bytes.subarray(-LAST_CHUNK.length).equals(LAST_CHUNK);
}

function awaitAnswers(link: Link, wanted: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(new Error('closed'));
    link.closed.signal.addEventListener('abort', stop, { once: true });
    link.look = () => {
      if (link.answers < wanted) return;
      link.answers -= wanted;
      link.look = () => undefined;
      link.closed.signal.removeEventListener('abort', stop);
      resolve();
    };
    link.look();
  });
}

const lines = createInterface({ input: process.stdin });
const [text] = await once(lines, 'line');
const job: Job = JSON.parse(String(text));
setPriority(NICE);
const attacker = new Attacker(job, () => void process.stdout.write('connected\n'));
const begins = once(lines, 'line');
process.stdout.write('ready\n');
await begins;
lines.once('close', () => attacker.stop());
process.stdout.write(`${JSON.stringify(await attacker.run())}\n`);
process.stdin.destroy();
