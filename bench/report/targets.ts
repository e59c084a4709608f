import { decimals, show, type Table, whole } from './table.ts';

interface Target {
  readonly what: string;
  readonly bound: 'min' | 'max';
  readonly value: number;
  readonly format: (value: number) => string;
}

const ratio = (what: string, value: number): Target => ({
  what,
  bound: 'min',
  value,
  format: decimals(2),
});

const maxRatio = (what: string, value: number): Target => ({ ...ratio(what, value), bound: 'max' });

/** Performance targets for two cores, 64 connections, token checks and durable commits. */
const targets = {
  createCpu: maxRatio("create, embedded, CPU per request to the bare handler's", 1.7),
  listCpu: maxRatio("list of 20, CPU per request to the bare handler's", 1.3),
  deleteCpu: maxRatio("delete, embedded, CPU per request to the bare handler's", 1.9),
  createToEcho: ratio("create, embedded, to the bare handler's echo", 0.65),
  listToConstant: ratio("list of 20, nothing changing, to the bare handler's constant answer", 0.7),
  listUnderWrites: ratio('list of 20 under 10 % writes, to the bare handler', 0.35),
  deleteToBare: ratio('delete, embedded, to the bare handler', 0.55),
  createToPgbench: ratio('create, PostgreSQL, to single inserts by pgbench', 1.4),
  createToPlatformatic: ratio('create, embedded, to Platformatic DB', 20),
  createToJsonServer: ratio('create, embedded, to json-server', 20),
  createPerCpuToPocketBase: ratio('creates per CPU second, embedded, to PocketBase', 10),
  listPerCpuToPocketBase: ratio('lists of 20 per CPU second, to PocketBase', 25),
  wholeList: {
    what: 'whole list of 1,000,000, plants/s',
    bound: 'min',
    value: 4_000_000,
    format: whole,
  },
  wholeListGrowth: {
    what: 'growth of memory meanwhile, MiB',
    bound: 'max',
    value: 32,
    format: decimals(1),
  },
  createGrowth: maxRatio('create, CPU per request at the worst size to the smallest', 1.15),
  listGrowth: maxRatio('list of 20, CPU per request at the worst size to the smallest', 1.15),
  deleteGrowth: maxRatio('delete, CPU per request at the worst size to the smallest', 1.15),
  ownersGrowth: maxRatio('many owners, CPU per request of the worst operation to few owners', 1.15),
  createP99: maxRatio("create, p99 at half load to the bare handler's", 2),
  listP99: maxRatio("list of 20, p99 at half load to the bare handler's", 2),
  deleteP99: maxRatio("delete, p99 at half load to the bare handler's", 2),
  start: { what: 'start to first answer, empty store, ms', bound: 'max', value: 400, format: whole },
} satisfies Record<string, Target>;

type TargetName = keyof typeof targets;

/** The measured values of the performance targets; undefined where nothing was measured. */
export type Results = Partial<Record<TargetName, number | undefined>>;

/** Tabulates each performance target with its measured value, and whether the value meets it. */
export function targetsTable(results: Results): Table {
  const rows = Object.entries<Target>(targets).map(([name, { what, bound, value, format }]) => {
    const measured = Object.entries(results).find(([one]) => one === name)?.[1];
    return [what, show(measured, format), `${bound} ${format(value)}`, verdict(measured, bound, value)];
  });
  return [['target', 'measured', '', ''], ...rows];
}

function verdict(measured: number | undefined, bound: Target['bound'], value: number): string {
  if (measured === undefined) return 'not measured';
  return (bound === 'min' ? measured >= value : measured <= value) ? 'held' : 'missed';
}
