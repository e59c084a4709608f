import { execFileSync } from 'node:child_process';
import { DatabaseSync } from 'node:sqlite';
import { canRun, needs } from '../needs.ts';
import type { Program, Service } from '../program.ts';
import { bearer } from '../service.ts';
import { withoutCoverage } from '../without-coverage.ts';

export const SHORT_NAME = 'Alder';

/** Number of creates that would need more space than the limited disk of any test has. */
export const MANY = 2_000;

export type Command = readonly string[];

/** Adds a limit on file sizes to a command, without coverage: its file would exceed the limit. */
export function limitedFiles(command: Command, kibibytes = 256): Command {
  return withoutCoverage(limitedUntilLifted(command, kibibytes));
}

/**
 * Adds a limit on file sizes to a command. Sets only the soft limit. The test must remove it with `liftLimit`
 * before the command ends.
 */
export function limitedUntilLifted(command: Command, kibibytes: number): Command {
  return ['bash', '-c', `ulimit -S -f ${kibibytes} && exec "$@"`, 'bash', ...command];
}

/** Options of a test that lifts the limit on file sizes. Without `prlimit` the test is not run. */
export const CAN_LIFT_LIMITS = needs(
  'prlimit',
  canRun('prlimit', '--pid', String(process.pid), '--fsize=unlimited:'),
);

export function liftLimit({ pid }: Program): void {
  execFileSync('prlimit', ['--pid', String(pid), '--fsize=unlimited:']);
}

interface Answer {
  readonly status: number;
  readonly error: number | undefined;
  readonly retryAfter: string | null;
  /** True if the message says that the outcome is unknown. */
  readonly isUnknown: boolean;
}

/** Creates a plant. Resolves to undefined when no response arrived. */
export async function create(
  service: Service,
  token: string,
  id: bigint,
  name: string,
): Promise<Answer | undefined> {
  const headers = { ...bearer(token), 'content-type': 'application/json' };
  const body = `{"id":${id},"name":${JSON.stringify(name)}}`;
  const response = await fetch(`${service.url}/plants`, { method: 'POST', headers, body }).catch(
    () => undefined,
  );
  if (response === undefined) return undefined;
  const { error, message = '' }: { error?: number; message?: string } = JSON.parse(await response.text());
  return {
    status: response.status,
    error,
    retryAfter: response.headers.get('retry-after'),
    isUnknown: /unknown/.test(message),
  };
}

interface Created {
  readonly acknowledged: readonly bigint[];
  /** The first error response; undefined when all creates succeeded or no response arrived. */
  readonly failure: Answer | undefined;
}

/** Creates plants one after the other until a creation fails. */
export async function createUntilFailure(
  service: Service,
  token: string,
  { name, from = 0n, limit }: { name: string; from?: bigint; limit: number },
): Promise<Created> {
  const acknowledged: bigint[] = [];
  while (acknowledged.length < limit) {
    const id = from + BigInt(acknowledged.length);
    const answer = await create(service, token, id, name);
    if (answer?.status !== 200) return { acknowledged, failure: answer };
    acknowledged.push(id);
  }
  return { acknowledged, failure: undefined };
}

export function inspect(file: string): { ids: ReadonlySet<bigint>; integrity: string } {
  using db = new DatabaseSync(file);
  const select = db.prepare('SELECT id FROM plants');
  select.setReadBigInts(true);
  const ids = new Set(select.all().map(({ id }) => BigInt(String(id))));
  const [{ integrity_check: integrity } = {}] = db.prepare('PRAGMA integrity_check').all();
  return { ids, integrity: String(integrity) };
}
