import { setTimeout } from 'node:timers/promises';
import { bearer } from '../../support/service.ts';
import { type Addressed, type Answer, Client, type Question } from '../../support/service-instances.ts';

const RETRY_MS = 50;

/**
 * Checks that an acknowledged write of one instance is in the next list of every other one, as long as it runs: creates
 * a plant, lists, deletes it, lists. Lists that get a 503 prove nothing and are counted.
 */
export class Probe {
  readonly #client = new Client();
  readonly #fronts: readonly Addressed[];
  readonly #token: string;
  readonly #running: Promise<void>;
  #isRunning = true;
  #lists = 0;
  #unavailable = 0;
  readonly #stale: string[] = [];

  constructor(fronts: readonly Addressed[], token: string) {
    this.#fronts = fronts;
    this.#token = token;
    this.#running = this.#run();
    this.#running.catch(() => undefined);
  }

  /** Ends the checks. Resolves to the lists that were read, those that got a 503, and what stale lists showed. */
  async end() {
    this.#isRunning = false;
    await this.#running;
    this.#client.close();
    return { lists: this.#lists, unavailable: this.#unavailable, stale: this.#stale };
  }

  async #run(): Promise<void> {
    for (let id = 1; this.#isRunning; id += 1) {
      const name = String(id);
      const headers = { 'content-type': 'application/json', 'idempotency-key': `probe-${id}` };
      const body = JSON.stringify({ id, name });
      await this.#insist(id, { method: 'POST', path: '/plants', headers, body });
      await this.#compare(name);
      await this.#insist(id + 1, { method: 'DELETE', path: `/plants/${id}` });
      await this.#compare(undefined);
    }
  }

  async #compare(expected: string | undefined): Promise<void> {
    for (const front of this.#fronts) {
      const { status, body } = await this.#ask(front, { method: 'GET', path: '/plants' });
      this.#lists += 1;
      if (status === 503) this.#unavailable += 1;
      else if (status !== 200) this.#stale.push(`${status} ${body}`);
      else if (body !== (expected === undefined ? '[]' : JSON.stringify([{ name: expected }])))
        this.#stale.push(`${body} and not ${expected ?? 'nothing'}`);
    }
  }

  /** Sends a write until it succeeds; a deletion may have been done by an earlier attempt. */
  async #insist(first: number, question: Question): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      const front = this.#fronts[(first + tries) % this.#fronts.length];
      if (front === undefined) throw new Error('the probe has no front');
      const { status, body } = await this.#ask(front, question);
      if (status < 300 || (status === 404 && tries > 0)) return;
      if (status !== 503) {
        this.#stale.push(`${question.method} ${question.path} gave ${status} ${body}`);
        return;
      }
      await setTimeout(RETRY_MS);
    }
  }

  #ask(front: Addressed, question: Question): Promise<Answer> {
    return this.#client.ask(front, {
      ...question,
      headers: { ...bearer(this.#token), ...question.headers },
    });
  }
}
