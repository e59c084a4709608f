import assert from 'node:assert/strict';
import { setTimeout } from 'node:timers/promises';
import { bearer } from './service.ts';
import { type Addressed, type Answer, Client, type Question } from './service-instances.ts';

interface LedgerOptions {
  /** Services or proxies in front of one store. Requests go to each in turn. */
  readonly fronts: readonly Addressed[];
  readonly token: string;
  readonly writers: number;
}

/** Counts of the writes, by their outcome. */
export interface Balance {
  readonly created: number;
  readonly deleted: number;
  /** Number of creates without an Idempotency-Key that got a 503. The plant may or may not exist. */
  readonly unknown: number;
  /** Number of creates with a key whose retry was a replay: an earlier attempt had stored the plant. */
  readonly replayed: number;
  /**
   * Number of responses with a 503. Deletions and creates with a key were then retried; creates without a key
   * are `unknown`.
   */
  readonly unavailable: number;
}

const RETRY_MS = 25;

/**
 * Runs writers while the store fails, and records every response. The writers create plants and delete every
 * second one. Most creates have an Idempotency-Key and are retried until their outcome is known; the other
 * creates are sent once.
 */
export class Ledger {
  readonly #client = new Client();
  readonly #options: LedgerOptions;
  readonly #created = new Set<string>();
  readonly #deleted = new Set<string>();
  readonly #unknown = new Set<string>();
  readonly #surprises: string[] = [];
  readonly #writers: Promise<unknown>;
  #acknowledged = Promise.withResolvers<void>();
  /** Services or proxies that have acknowledged no write since the call of {@link everyFrontAcknowledged}. */
  #silent = new Set<Addressed>();
  /** Time at which each service or proxy last acknowledged a write. */
  #lastAcknowledged = new Map<Addressed, number>();
  #longestSilence = 0;
  #running = true;
  #serial = 0;
  #requests = 0;
  #replayed = 0;
  #unavailable = 0;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#writers = Promise.all(Array.from({ length: options.writers }, () => this.#runWriter()));
    // If a writer fails while no method waits for it, the next method that waits rejects with that error.
    this.#writers.catch(() => undefined);
  }

  /** Resolves at the next acknowledged write. Rejects when a request of a writer got no response. */
  async nextAcknowledged(): Promise<void> {
    await Promise.race([this.#acknowledged.promise, this.#writers]);
  }

  /**
   * Resolves when each service or proxy has acknowledged a write after this call. Rejects when a request of a
   * writer got no response.
   */
  async everyFrontAcknowledged(): Promise<void> {
    this.#silent = new Set(this.#options.fronts);
    while (this.#silent.size > 0) await this.nextAcknowledged();
  }

  /**
   * Returns the longest gap, in milliseconds, between two acknowledged writes of the same service or proxy
   * since the last call.
   */
  takeLongestSilence(): number {
    const longest = this.#longestSilence;
    this.#longestSilence = 0;
    return longest;
  }

  /** Stops the writers after their current plants. Without this call they never stop. */
  async finish(): Promise<void> {
    this.#running = false;
    await this.#writers;
  }

  /** Stops the writers and compares the store with the recorded responses. Rejects when they differ. */
  async settle(): Promise<Balance> {
    await this.finish();
    try {
      assertNone(this.#surprises, 'unexpected answers');
      for (const front of this.#options.fronts) await this.#compare(front);
    } finally {
      this.#client.close();
    }
    return this.balance();
  }

  /** Returns the counts of writes so far. */
  balance(): Balance {
    return {
      created: this.#created.size,
      deleted: this.#deleted.size,
      unknown: this.#unknown.size,
      replayed: this.#replayed,
      unavailable: this.#unavailable,
    };
  }

  async #compare(front: Addressed): Promise<void> {
    const answer = await this.#client.ask(front, this.#withToken({ method: 'GET', path: '/plants' }));
    assert.equal(answer.status, 200, answer.body);
    const plants: { name: string }[] = JSON.parse(answer.body);
    const present = new Set(plants.map(({ name }) => name));
    assert.equal(present.size, plants.length, 'a plant is listed twice');
    const expected = this.#created.difference(this.#deleted);
    assertNone([...expected.difference(present)], 'acknowledged creations are lost');
    assertNone(
      [...present.difference(expected).difference(this.#unknown)],
      'acknowledged deletions are lost, or plants were created twice',
    );
  }

  async #runWriter(): Promise<void> {
    while (this.#running) {
      this.#serial += 1;
      const serial = this.#serial;
      const name = String(serial);
      const isCreated = serial % 4 === 0 ? await this.#createOnce(name) : await this.#createForSure(name);
      if (isCreated && serial % 2 === 0) await this.#deleteForSure(name);
    }
  }

  async #createOnce(name: string): Promise<boolean> {
    const answer = await this.#try(creation(name, {}));
    if (answer?.status === 200) this.#created.add(name);
    else if (answer === undefined) this.#unknown.add(name);
    else this.#surprises.push(`${name}: ${answer.status} ${answer.body}`);
    return answer?.status === 200;
  }

  async #createForSure(name: string): Promise<boolean> {
    const answer = await this.#insist(creation(name, { 'idempotency-key': `ledger-${name}` }));
    if (answer.status !== 200) {
      this.#surprises.push(`${name}: ${answer.status} ${answer.body}`);
      return false;
    }
    if (answer.headers['idempotent-replayed'] === 'true') this.#replayed += 1;
    this.#created.add(name);
    return true;
  }

  /** Retries a deletion until its outcome is known. A retry may find the plant already deleted. */
  async #deleteForSure(name: string): Promise<void> {
    let tries = 0;
    const question = { method: 'DELETE', path: `/plants/${name}` } as const;
    const answer = await this.#insist(question, () => {
      tries += 1;
    });
    if (answer.status === 204 || (answer.status === 404 && tries > 1)) this.#deleted.add(name);
    else this.#surprises.push(`deletion of ${name}: ${answer.status} ${answer.body}`);
  }

  async #insist(question: Question, onTry = (): void => undefined): Promise<Answer> {
    for (;;) {
      onTry();
      const answer = await this.#try(question);
      if (answer !== undefined) return answer;
      await setTimeout(RETRY_MS);
    }
  }

  /** Sends a request. Resolves to the response, or to undefined when the outcome is unknown. */
  async #try(question: Question): Promise<Answer | undefined> {
    const { fronts } = this.#options;
    const front = fronts[this.#requests % fronts.length];
    if (front === undefined) throw new Error('the ledger has no front');
    this.#requests += 1;
    const answer = await this.#ask(front, question);
    if (answer.status === 503) {
      assert.match(answer.body, /"error":50300/);
      assert.ok(Number(answer.headers['retry-after']) >= 1);
      this.#unavailable += 1;
      return undefined;
    }
    if (answer.status < 300) {
      this.#silent.delete(front);
      const now = performance.now();
      this.#longestSilence = Math.max(this.#longestSilence, now - (this.#lastAcknowledged.get(front) ?? now));
      this.#lastAcknowledged.set(front, now);
      this.#acknowledged.resolve();
      this.#acknowledged = Promise.withResolvers();
    }
    return answer;
  }

  async #ask(front: Addressed, question: Question): Promise<Answer> {
    try {
      return await this.#client.ask(front, this.#withToken(question));
    } catch (cause: unknown) {
      throw new Error(`no response to ${question.method} ${question.path} at ${front.url}: ${cause}`, {
        cause,
      });
    }
  }

  #withToken(question: Question): Question {
    return { ...question, headers: { ...bearer(this.#options.token), ...question.headers } };
  }
}

function assertNone(found: readonly string[], what: string): void {
  assert.ok(found.length === 0, `${what}: ${found.join(', ')}`);
}

function creation(name: string, headers: Readonly<Record<string, string>>): Question {
  return {
    method: 'POST',
    path: '/plants',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ id: Number(name), name }),
  };
}
