import { readFile, writeFile } from 'node:fs/promises';
import { type TSchema, Type } from '../../src/schema.ts';
import { messageOf } from '../../src/thrown-errors.ts';
import { compileCheck } from '../../src/validation.ts';
import type { Costs, EngineName } from './model.ts';

const measured: TSchema<number> = {
  type: 'number',
  '~is': (value): value is number => typeof value === 'number' && Number.isFinite(value) && value >= 0,
  '~violation': () => ({ field: '', rule: 'must be a number' }),
};

const costsSchema: TSchema<Costs> = Type.Object({
  service: Type.Object({
    ...{ createUs: measured, batchUs: measured, listUs: measured, rejectUs: measured },
    background: measured,
  }),
  database: Type.Object({ createUs: measured, batchUs: measured, listUs: measured }),
  ...{ syncMs: measured, generatorUs: measured },
  crowding: Type.Object({ create: measured, list: measured }),
});
const check = compileCheck(Type.Object({ postgres: costsSchema, sqlite: costsSchema }));

type CostsOfEngines = Readonly<Record<EngineName, Costs>>;

/** Writes the measured costs of a machine to a file. */
export async function writeCosts(file: string, costs: CostsOfEngines): Promise<void> {
  await writeFile(file, `${JSON.stringify(costs, roundNumber, 2)}\n`);
}

/** Reads the costs of a machine from a file. Throws an Error that names the file and the remedy. */
export async function readCosts(file: string): Promise<CostsOfEngines> {
  try {
    const checked = check(JSON.parse(await readFile(file, 'utf8')));
    if ('value' in checked) return checked.value;
    throw new Error(`${checked.violation.field} ${checked.violation.rule}`);
  } catch (error: unknown) {
    throw new Error(
      `${file} has no measured costs: ${messageOf(error)}; write it with npm run capacity -- --measure`,
    );
  }
}

function roundNumber(_name: string, value: unknown): unknown {
  return typeof value === 'number' ? Number(value.toPrecision(4)) : value;
}
