import { after, before, type TestContext } from 'node:test';
import { type Config, loadConfig, type Setting } from '../../src/config.ts';
import { logTo } from '../../src/observability/log.ts';
import { startServer } from '../../src/server.ts';
import type { Store } from '../../src/store/store.ts';
import type { Scope } from '../../src/token.ts';
import { engines, type TestEngine } from './engines.ts';
import { PATIENT_CONNECTIONS } from './patience.ts';
import { createTokenIn } from './tokens.ts';

export interface TestService {
  readonly url: string;
  readonly adminUrl: string;
  readonly store: Store;
  readonly config: Config;
  /** Clock of the service, which tests set. */
  readonly clock: { now: number; monotonic: number };
  /** Log lines of the service so far. */
  readonly logLines: readonly string[];
  /** Creates a token in the store of the service. */
  token(owner?: string, options?: { scopes?: readonly Scope[]; expiresAt?: number | null }): Promise<string>;
  close(how?: 'gracefully'): Promise<void>;
}

/** Starts the service in this process, with real ports and a real store. It stops after the test. */
export async function startService(
  t: Pick<TestContext, 'after'>,
  databaseUrl: string,
  flags: Partial<Record<Setting, string>> = {},
): Promise<TestService> {
  const config = loadConfig({ port: '0', adminPort: '0', databaseUrl, ...PATIENT_CONNECTIONS, ...flags }, {});
  // Whole milliseconds, so that sums are exact.
  const clock = { now: Date.now(), monotonic: Math.ceil(performance.now()) };
  const logLines: string[] = [];
  const serviceLog = {
    ...logTo({ write: (line) => void logLines.push(line) }, 'info'),
    linesDropped: () => 0,
    reportDropped: () => undefined,
  };
  const server = await startServer({
    config,
    serviceLog,
    onFatal: (error) => {
      throw error;
    },
    now: () => clock.now,
    monotonicNow: () => clock.monotonic,
  });
  let closing: Promise<void> | undefined;
  const close = (how?: 'gracefully'): Promise<void> => (closing ??= server.close(how));
  t.after(() => close());
  return {
    url: server.url,
    adminUrl: server.adminUrl,
    store: server.store,
    config,
    clock,
    logLines,
    close,
    token: async (owner = 'alice', options = {}) =>
      (await createTokenIn(server.store, owner, options, clock.now)).secret,
  };
}

/**
 * Starts a service on each engine for all tests of a file. This saves most of the time of short tests. The
 * returned function resolves to the service of an engine, with a token of a new owner.
 */
export function shareServices(): (
  engine: TestEngine,
) => Promise<{ service: TestService; owner: string; token: string }> {
  const services = new Map<TestEngine, TestService>();
  const ends: (() => unknown)[] = [];
  const lifetime = { after: (end: () => unknown) => void ends.unshift(end) };
  let owners = 0;
  before(async () => {
    for (const engine of engines)
      services.set(engine, await startService(lifetime, await engine.freshUrl(lifetime)));
  });
  after(async () => {
    for (const end of ends) await end();
  });
  return async (engine) => {
    const service = services.get(engine);
    if (service === undefined) throw new Error(`there is no service on ${engine.name} before the tests`);
    owners += 1;
    const owner = `owner-${owners}`;
    return { service, owner, token: await service.token(owner) };
  };
}

export function bearer(token: string): Record<string, string> {
  return { authorization: `Bearer ${token}` };
}
