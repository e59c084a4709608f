import type { FastifyInstance } from 'fastify';
import type { Registry } from 'prom-client';
import Gauge from 'prom-client/lib/gauge.js';
import { ApiError } from '../api-errors.ts';
import { afterRunning, within } from '../running-time.ts';
import { messageOf } from '../thrown-errors.ts';
import { RETRY_SOON } from './error-response.ts';
import { createHttpApp, type HttpAppOptions } from './http-app.ts';
import { answerOtherMethods, collectMethods } from './protocol/method-not-allowed.ts';
import { asJson, COMMON_HEADERS } from './response-head.ts';

/** A condition that /ready checks. While the condition is not met, `check` rejects with the reason. */
export interface ReadinessCheck {
  readonly name: string;
  check(): Promise<void>;
}

interface Probe {
  readonly name: string;
  /** Resolves to undefined if the check passes, otherwise to its name and error message. */
  failure(): Promise<string | undefined>;
}

interface AdminOptions extends Pick<HttpAppOptions, 'limits' | 'connections' | 'log'> {
  readonly registry: Registry;
  readonly checks: readonly ReadinessCheck[];
}

/** Max renderings of /metrics per second. Further requests get the previous text, up to a second old. */
export const SCRAPES_RENDERED = 10;
const SECOND_MS = 1_000;

/**
 * Max milliseconds that a response waits for a readiness check: shorter than the timeout of common load balancers. If
 * the check takes longer, the response has its previous result, so that a slow store does not take away all instances.
 */
export const CHECK_MS = 1_000;

/**
 * Milliseconds after which a check without a result fails. Exceeds the default statement timeout, with which a request
 * still gets its late response.
 */
export const SILENT_MS = 6_000;

/** Creates the application for operators, on a separate port: /live, /ready and /metrics. */
export function createAdmin({ registry, checks, limits, connections, log }: AdminOptions): FastifyInstance {
  const probes = checks.map((check) => ({ name: check.name, failure: createProbe(check) }));
  gaugeProbes(registry, probes);
  const scrape = limitScrapes(() => registry.metrics());
  const admin = createHttpApp({
    ...{ limits, connections, log },
    headers: COMMON_HEADERS,
    // No route reads a body, so that none is kept.
    countBody: () => undefined,
    allowed: 'GET, HEAD, OPTIONS',
    noSuchRoute: () => new ApiError(40401, 'no such route; this port serves /live, /ready and /metrics'),
  });
  const methods = collectMethods(admin);
  const withHead = { exposeHeadRoute: true };
  admin.get('/live', withHead, async (_request, reply) => asJson(reply, '{"status":"ok"}'));
  admin.get('/ready', withHead, async (_request, reply) => {
    const failures = await Promise.all(probes.map(({ failure }) => failure()));
    const failed = failures.filter((failure) => failure !== undefined);
    if (failed.length > 0) throw new ApiError(50300, `not ready: ${failed.join('; ')}`, RETRY_SOON);
    const passed = Object.fromEntries(checks.map(({ name }) => [name, 'ok']));
    return asJson(reply, JSON.stringify({ status: 'ok', checks: passed }));
  });
  admin.get('/metrics', withHead, async (_request, reply) => {
    reply.header('content-type', registry.contentType);
    return scrape();
  });
  answerOtherMethods(admin, methods);
  return admin;
}

function limitScrapes(render: () => Promise<string>): () => Promise<string> {
  let begun = performance.now();
  let rendered = 0;
  let last: Promise<string> | undefined;
  return () => {
    const now = performance.now();
    if (now - begun >= SECOND_MS) {
      begun = now;
      rendered = 0;
    }
    if (last !== undefined && rendered >= SCRAPES_RENDERED) return last;
    rendered += 1;
    last = render();
    return last;
  };
}

/**
 * Registers a gauge with the result of each readiness check, to show why an instance is not ready. Metrics of
 * requests cannot show the reason: such an instance gets no requests.
 */
function gaugeProbes(registry: Registry, probes: readonly Probe[]): void {
  new Gauge({
    name: 'plant_store_ready',
    help: '1 if a check of /ready passes, else 0',
    labelNames: ['check'],
    registers: [registry],
    async collect() {
      const failures = await Promise.all(probes.map(({ failure }) => failure()));
      for (const [index, { name }] of probes.entries())
        this.set({ check: name }, failures[index] === undefined ? 1 : 0);
    },
  });
}

/**
 * Returns a function that runs a readiness check, or waits for the one that is running: checks must not pile up on a slow
 * store. After CHECK_MS, it resolves to the latest result.
 */
function createProbe({ name, check }: ReadinessCheck): Probe['failure'] {
  let latest: string | undefined = `${name}: no response yet`;
  let running: Promise<void> | undefined;

  async function run(): Promise<void> {
    const silent = Promise.withResolvers<never>();
    const cancel = afterRunning(SILENT_MS, () =>
      silent.reject(new Error(`no response within ${SILENT_MS} ms`)),
    );
    try {
      // Gives up a silent check, so that the next one can start: its connection may be dead although the store is
      // reachable again.
      await Promise.race([check(), silent.promise]);
      latest = undefined;
    } catch (error: unknown) {
      latest = `${name}: ${messageOf(error)}`;
    } finally {
      cancel();
    }
  }

  return async () => {
    running ??= run().finally(() => {
      running = undefined;
    });
    await within(CHECK_MS, running);
    return latest;
  };
}
