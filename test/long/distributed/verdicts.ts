import { NEEDS } from '../../support/needs.ts';

/** Prints a line for each check: `ok`, `FAULT`, or `not run` and what it needs. */
export class Verdicts {
  readonly #print: (line: string) => void;
  #faults = 0;

  constructor(print: (line: string) => void) {
    this.#print = print;
  }

  get faults(): number {
    return this.#faults;
  }

  /** Runs a check, which resolves to its figures. It found a fault when it rejects. */
  async check(name: string, work: () => Promise<string>): Promise<void> {
    try {
      this.#print(`ok       ${name}: ${await work()}`);
    } catch (error: unknown) {
      this.#faults += 1;
      this.#print(`FAULT    ${name}: ${error instanceof Error ? error.message : error}`);
    }
  }

  /** Runs a check on a planted fault, which it must find: it must reject with a message that matches. */
  async control(name: string, finds: RegExp, work: () => Promise<unknown>): Promise<void> {
    await this.check(name, async () => {
      const message = await work().then(
        () => undefined,
        (error: unknown) => (error instanceof Error ? error.message : String(error)),
      );
      const found = message === undefined ? undefined : finds.exec(message)?.[0];
      if (found === undefined) throw new Error(`the planted fault was not found: ${message ?? 'no fault'}`);
      return `found: ${found}`;
    });
  }

  notRun(name: string, needs: string): void {
    this.#print(`not run  ${name}: ${NEEDS}${needs}`);
  }
}
