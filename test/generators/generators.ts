import { globalSetup, globalTeardown } from '../support/global-setup.ts';
import { readFlags } from '../support/script-flags.ts';
import { type Row, rows } from './rows.ts';
import { missingOf, runRow, type Workplace, withWorkplace } from './run-row.ts';

type Verdict = 'passed' | 'failed' | 'not run';

/** Runs a row and prints its line. A failure prints the command and its output. */
async function judge(row: Row, workplace: Workplace): Promise<Verdict> {
  const missing = missingOf(row);
  if (missing.length > 0) {
    print(`${row.name}: not run, since this machine has no ${missing.join(' and no ')}`);
    return 'not run';
  }
  const began = performance.now();
  try {
    const done = await runRow(row, workplace);
    print(`${row.name}: ${done} (${Math.round((performance.now() - began) / 1_000)} s)`);
    return 'passed';
  } catch (error: unknown) {
    print(`${row.name}: FAILED\n${error instanceof Error ? error.message : String(error)}`);
    return 'failed';
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (import.meta.main) {
  const { only = '' } = readFlags(
    'Generates a client with each generator of docs/generated-clients.md, compiles it and runs it against a service.',
    { only: { type: 'string', takes: 'NAME', about: 'rows whose names contain this; all by default' } },
  );
  const chosen = rows.filter(({ name }) => name.toLowerCase().includes(only.toLowerCase()));
  await globalSetup();
  try {
    const verdicts = await withWorkplace(async (workplace) => {
      const all: Verdict[] = [];
      for (const row of chosen) all.push(await judge(row, workplace));
      return all;
    });
    const count = (verdict: Verdict): number => verdicts.filter((one) => one === verdict).length;
    print(`${count('passed')} passed, ${count('failed')} failed, ${count('not run')} not run`);
    process.exitCode = count('failed') > 0 || count('passed') === 0 ? 1 : 0;
  } finally {
    await globalTeardown();
  }
}
