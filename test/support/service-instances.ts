import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openStore } from '../../src/store/open-engine.ts';
import { createTokenIn } from './tokens.ts';

const PROGRAM = fileURLToPath(new URL('../../bin/plant-store.js', import.meta.url));

/** An instance of the service with separate ports, which can restart. */
export interface Instance {
  /** Current address of the instance; after a stop, its last address. */
  readonly url: string;
  readonly adminUrl: string;
  /** Current process id of the instance; after a stop, its last process id. */
  readonly pid: number;
  /** Number of times that the process of the instance exited without a request to stop. */
  readonly accidents: number;
  /** Everything that the instance wrote to stdout and stderr. */
  readonly output: string;
  /** Sends SIGTERM and resolves to the exit code. */
  stop(): Promise<number | null>;
  /** Starts the instance again, on new ports. */
  start(): Promise<void>;
}

type Environment = Readonly<Record<string, string>>;

/** Starts several instances of `plant-store serve` on one database at once. They stop after the test. */
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

/**
 * Stops instances of the service. Rejects if one exits without a request to stop, or with a code other than
 * 0.
 */
export async function stopInOrder(instances: readonly Instance[]): Promise<void> {
  const codes = await Promise.all(instances.map((instance) => instance.stop()));
  const failed = instances.filter(({ accidents }, index) => accidents > 0 || codes[index] !== 0);
  if (failed.length === 0) return;
  const endings = codes.map((code) => code ?? 'a signal').join(', ');
  throw new Error(
    `${failed.length} of ${instances.length} instances exited early or with an error: ${endings}`,
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

/** Resolves to the addresses in the "serving" log line. Rejects when the service exits first. */
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
  child.once('exit', (code) => reject(new Error(`the service exited with ${code} before it was ready`)));
  return promise;
}

export interface Question {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Path of the request relative to the base URL, such as `/plants`. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** A service or proxy, whose address may change between requests. */
export interface Addressed {
  readonly url: string;
}

/** An HTTP client with keep-alive connections and without retries. */
export class Client {
  readonly #agent = new Agent({ keepAlive: true });

  /** Sends one request to one instance. Rejects when no complete response arrives. */
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
          if (!response.complete) reject(new Error('the response is incomplete'));
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

/** True if the connection failed to open, so that no byte of the request was sent. */
function isUnsent(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}

/** A client that sends each request to the next instance, and skips instances that accept no connection. */
export class RoundRobin {
  readonly client = new Client();
  readonly #instances: readonly Addressed[];
  #next: number;

  constructor(instances: readonly Addressed[]) {
    this.#instances = instances;
    // Starts at a random instance. With a fixed first instance, the same step of every client (such as its
    // deletion) would reach the same instance.
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

/** Creates a token of an owner in the store at a URL. Returns its secret and id. */
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
    return await createTokenIn(store, owner);
  } finally {
    await store.close();
  }
}
