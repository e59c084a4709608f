import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openStore } from '../../src/store/open-engine.ts';
import { mintSecret, newToken, scopes } from '../../src/token.ts';

const PROGRAM = fileURLToPath(new URL('../../bin/plant-store.js', import.meta.url));

/** One process of the service, on ports of its own. */
export interface Instance {
  /** Where it is reached, or was until it stopped. */
  readonly url: string;
  readonly adminUrl: string;
  /** The process that runs now, or ran last. */
  readonly pid: number;
  /** How often a process of the instance ended without being told to. */
  readonly accidents: number;
  /** All that its processes wrote on stdout and stderr. */
  readonly output: string;
  /** Tells it to stop and resolves to its exit code. */
  stop(): Promise<number | null>;
  /** Starts it again, on new ports. */
  start(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;

/** Starts some instances of `plant-store serve` on one database at once; they stop after the test. */
export async function startInstances(
  t: Pick<TestContext, 'after'>,
  databaseUrl: string,
  count: number,
  environment: Environment = {},
): Promise<readonly Instance[]> {
  const instances = Array.from({ length: count }, () => createInstance(databaseUrl, environment));
  t.after(async () => {
    await Promise.all(instances.map((instance) => instance.stop()));
  });
  await Promise.all(instances.map((instance) => instance.start()));
  return instances;
}

/** Stops instances. Rejects when one of them had ended before, or ends otherwise than with 0. */
export async function stopInOrder(instances: readonly Instance[]): Promise<void> {
  const codes = await Promise.all(instances.map((instance) => instance.stop()));
  const failed = instances.filter(({ accidents }, index) => accidents > 0 || codes[index] !== 0);
  if (failed.length === 0) return;
  const endings = codes.map((code) => code ?? 'a signal').join(', ');
  throw new Error(
    `${failed.length} of ${instances.length} instances ended by themselves or in disorder, with ${endings}`,
  );
}

function createInstance(databaseUrl: string, environment: Environment): Instance {
  let child: ChildProcess | undefined;
  let addresses = { url: '', adminUrl: '' };
  let accidents = 0;
  let stopping = false;
  let output = '';

  async function start(): Promise<void> {
    const env = { ...process.env, DATABASE_URL: databaseUrl, PORT: '0', ADMIN_PORT: '0', ...environment };
    stopping = false;
    child = spawn(process.execPath, [PROGRAM, 'serve'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.once('exit', () => {
      if (!stopping) accidents += 1;
    });
    addresses = await serving(child, (line) => {
      output += `${line}\n`;
    });
  }

  async function stop(): Promise<number | null> {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      return child?.exitCode ?? null;
    }
    stopping = true;
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    await exited;
    return child.exitCode;
  }

  return {
    get url() {
      return addresses.url;
    },
    get adminUrl() {
      return addresses.adminUrl;
    },
    get pid() {
      return child?.pid ?? 0;
    },
    get accidents() {
      return accidents;
    },
    get output() {
      return output;
    },
    start,
    stop,
  };
}

/** Resolves to the addresses that a service logs once it serves; rejects when it ends before. */
function serving(
  child: ChildProcess,
  onLine: (line: string) => void,
): Promise<{ url: string; adminUrl: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ url: string; adminUrl: string }>();
  if (child.stdout === null) throw new Error('the service has no stdout');
  createInterface({ input: child.stdout }).on('line', (line) => {
    onLine(line);
    const entry: unknown = line.startsWith('{') ? JSON.parse(line) : undefined;
    if (typeof entry !== 'object' || entry === null || !('msg' in entry) || entry.msg !== 'serving') return;
    if ('url' in entry && 'adminUrl' in entry)
      resolve({ url: String(entry.url), adminUrl: String(entry.adminUrl) });
  });
  child.once('exit', (code) => reject(new Error(`the service ended with ${code} before it served`)));
  return promise;
}

export interface Question {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Below the base of the service, such as `/plants`. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Anything with an address that may change from request to request. */
export interface Addressed {
  readonly url: string;
}

/** A client that keeps its connections, without retries of its own. */
export class Client {
  readonly #agent = new Agent({ keepAlive: true });

  /** Sends one request to one instance. Rejects when no whole answer comes. */
  ask({ url }: Addressed, { method, path, headers = {}, body }: Question): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const sent = request(
      `${url}${path}`,
      { method, agent: this.#agent, headers: { ...headers, ...length } },
      (response) => {
        const parts: string[] = [];
        response.setEncoding('utf8').on('data', (part: string) => void parts.push(part));
        response.once('error', reject);
        response.once('close', () => {
          if (!response.complete) reject(new Error('the answer was cut'));
          else resolve({ status: response.statusCode ?? 0, headers: response.headers, body: parts.join('') });
        });
      },
    );
    sent.once('error', reject);
    sent.end(body);
    return promise;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** Whether there was no connection yet, so that nothing of the request was sent. */
function isUnsent(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}

/** Sends each request to the next instance in turn, and past those that take no connection. */
export class RoundRobin {
  readonly client = new Client();
  readonly #instances: readonly Addressed[];
  #next: number;

  constructor(instances: readonly Addressed[]) {
    this.#instances = instances;
    // Several of these, each asking the same questions in turn, ask all of them of all instances.
    this.#next = Math.floor(Math.random() * instances.length);
  }

  async ask(question: Question): Promise<Answer> {
    const first = this.#next;
    this.#next += 1;
    let failure: unknown;
    for (const step of this.#instances.keys()) {
      const instance = this.#instances[(first + step) % this.#instances.length];
      if (instance === undefined) break;
      try {
        return await this.client.ask(instance, question);
      } catch (error: unknown) {
        if (!isUnsent(error)) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  close(): void {
    this.client.close();
  }
}

/** A token of an owner, made in the store that a URL names; with it, its id. */
export async function createToken(
  databaseUrl: string,
  owner = 'alice',
): Promise<{ secret: string; id: string }> {
  const store = await openStore(databaseUrl, {
    onFatal: (error) => {
      throw error;
    },
    now: Date.now,
    connections: { poolSize: 2, acquireTimeoutMs: 5_000, statementTimeoutMs: 5_000, prepare: false },
  });
  try {
    const secret = mintSecret();
    const token = newToken(secret, owner, { scopes, expiresAt: null, name: 'test' }, Date.now());
    await store.write({ kind: 'createToken', token });
    return { secret, id: token.id };
  } finally {
    await store.close();
  }
}
