import Fastify, { type FastifyInstance } from 'fastify';
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client';
import { Refusal } from '../errors.ts';
import type { Store } from '../store.ts';
import { sendRefusal, toRefusal } from './refusals.ts';

interface Observer {
  observe(seconds: number): void;
}

export interface Metrics {
  readonly registry: Registry;
  answered(operationId: string, status: number, seconds: number): void;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const durations = new Histogram({
    name: 'plant_store_http_request_duration_seconds',
    help: 'Time from the arrival of a request to the end of its answer.',
    labelNames: ['operation', 'status'],
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers: [registry],
  });
  // One child a label pair: the library would check and join the labels at each observation.
  const byOperation = new Map<string, Map<number, Observer>>();

  function observerOf(operation: string, status: number): Observer {
    const byStatus = byOperation.get(operation) ?? new Map<number, Observer>();
    const observer = byStatus.get(status) ?? durations.labels({ operation, status });
    byOperation.set(operation, byStatus.set(status, observer));
    return observer;
  }

  return {
    registry,
    answered: (operation, status, seconds) => observerOf(operation, status).observe(seconds),
  };
}

/** The listener for operators: /live, /ready and /metrics. Never on the public port. */
export function createAdmin(store: Store, { registry }: Metrics): FastifyInstance {
  const admin: FastifyInstance = Fastify({ return503OnClosing: false });
  admin.get('/live', async () => ({ status: 'ok' }));
  admin.get('/ready', async () => {
    await store.ping();
    return { status: 'ok' };
  });
  admin.get('/metrics', async (_request, reply) => {
    reply.header('content-type', registry.contentType);
    return registry.metrics();
  });
  admin.setErrorHandler((error, _request, reply) => sendRefusal(reply, toRefusal(error)));
  admin.setNotFoundHandler((_request, reply) =>
    sendRefusal(reply, new Refusal(40401, 'here are /live, /ready and /metrics')),
  );
  return admin;
}
