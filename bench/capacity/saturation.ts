import type { Costs, Plan } from './model.ts';
import { type Result, simulate, type Use } from './simulate.ts';

/**
 * Connections per instance at full load: fewer than `--max-in-flight`, so that the service rejects no request
 * for that limit.
 */
const CONNECTIONS = 64;
/** Min share of busy time of a resource that counts as saturated. */
const SATURATED = 0.9;
/** Ratio of the throughput with an addition to that without; only a higher ratio counts as a gain. */
const GAIN = 1.02;

export interface Saturation {
  readonly full: Result;
  /** The resources that limit the throughput, the busiest first. Empty if no resource is saturated. */
  readonly limits: readonly Use[];
  /** Additions to the plan, each simulated alone, with the highest throughput first. */
  readonly additions: readonly Addition[];
}

interface Addition {
  readonly what: string;
  readonly perSecond: number;
  readonly helps: boolean;
}

/**
 * Simulates the plan at full load: clients send as fast as they get responses. Then simulates the plan with
 * one addition at a time.
 */
export function saturate(plan: Plan, costs: Costs): Saturation {
  const atFullLoad = (one: Plan): Result =>
    simulate({ ...one, load: { connections: CONNECTIONS * one.instances }, retries: 0, faults: [] }, costs);
  const full = atFullLoad(plan);
  const additions = additionsTo(plan).map(([what, more]) => {
    const { perSecond } = atFullLoad(more);
    return { what, perSecond, helps: perSecond > full.perSecond * GAIN };
  });
  return {
    full,
    limits: limitsOf(full.uses),
    additions: additions.sort((a, b) => b.perSecond - a.perSecond),
  };
}

/**
 * Returns saturated cores. If there are none, returns saturated threads, nodes and disks, or else pools and
 * batches. Threads that wait for a core look busy too.
 */
function limitsOf(uses: readonly Use[]): readonly Use[] {
  const full = uses.filter(({ share }) => share >= SATURATED).sort((a, b) => b.share - a.share);
  const cores = full.filter(({ kind }) => kind === 'cores');
  const hardware = full.filter(({ kind }) => kind !== 'pool' && kind !== 'batches');
  return [cores, hardware, full].find((some) => some.length > 0) ?? [];
}

function additionsTo(plan: Plan): readonly (readonly [string, Plan])[] {
  const { databasePoolSize, tokenRateLimit } = plan.limits;
  const cores = [`${plan.cores} more cores per machine`, { ...plan, cores: plan.cores * 2 }] as const;
  const withoutRates = { ...plan, limits: { ...plan.limits, tokenRateLimit: 0 } };
  const rates = tokenRateLimit === 0 ? [] : [['no --token-rate-limit', withoutRates] as const];
  if (plan.engine === 'sqlite') return [cores, ...rates];
  const pool = { ...plan.limits, databasePoolSize: databasePoolSize * 2 };
  return [
    ['one more instance', { ...plan, instances: plan.instances + 1 }],
    ['one more database node', { ...plan, nodes: plan.nodes + 1 }],
    cores,
    [`--database-pool-size ${pool.databasePoolSize}`, { ...plan, limits: pool }],
    ...rates,
  ];
}
