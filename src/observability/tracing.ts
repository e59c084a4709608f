import { setImmediate } from 'node:timers/promises';
import {
  type Context,
  context,
  DiagLogLevel,
  diag,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace-node';
import type { FastifyInstance, FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify';
import { version } from '../packaged-files.ts';
import { within } from '../running-time.ts';
import type { Store } from '../store/store.ts';

export interface Tracing {
  /**
   * Starts a span for each request of an application. Must be called before the application adds `onRequest`
   * hooks.
   */
  traceRequests(app: FastifyInstance): void;
  /** Ends the span of a request. The status is undefined if the client closed the connection. */
  endSpan(request: FastifyRequest, status: number | undefined): void;
  /** Wraps a store: each write of a traced request gets a span. */
  traceStore(store: Store): Store;
  /** Sends pending spans for up to `maxMs` milliseconds, reports those that are lost, and stops tracing. */
  close(maxMs: number): Promise<void>;
}

/** Called with the reports of OpenTelemetry, which are to be logged. */
interface TracingReports {
  /** A variable has a value that does not work. Called at the start only, once for each such variable. */
  onMisconfigured(warning: string): void;
  /** Something is wrong, but no span is lost. */
  onWarning(warning: string): void;
  /** Spans could not be sent. `spans` is the number lost since the last call. */
  onSpansLost(problem: string, spans: number): void;
}

/** Methods that the OpenTelemetry conventions for HTTP know: those of RFC 9110, PATCH and QUERY. */
const KNOWN_METHODS = 'GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY'.split(' ');

/** Arguments of a report of the SDK. It has an exception, and what a collector did not accept, as a JSON object. */
type Report = readonly unknown[];

function jsonIn(part: unknown): Record<string, unknown> {
  try {
    return Object(JSON.parse(String(part)));
  } catch {
    return {};
  }
}

/** Max characters of a report in the log: a collector can send a message of megabytes. */
const MAX_REPORT_LENGTH = 1_000;

/** Returns the parts of a report as one line of text, without stacks, bodies of responses and binary data. */
function textOf(report: Report): string {
  return report.map(textOfPart).join(' ').trim().slice(0, MAX_REPORT_LENGTH);
}

function textOfPart(part: unknown): unknown {
  if (part instanceof Error) return textOfError({ ...part, message: part.message });
  if (typeof part !== 'string') return '';
  return part.startsWith('{') ? textOfError(jsonIn(part)) : part;
}

/** Returns the text of an exception, or of what a collector did not accept. */
function textOfError({ code, name, message, errorMessage }: Readonly<Record<string, unknown>>): unknown {
  const text = errorMessage || message;
  const status = /^\d{3}$/.exec(String(code))?.[0];
  if (status === undefined) return text || code || name || '';
  return `HTTP ${status} ${text || ''}`.trim();
}

/** Returns the number of spans that a warning reports as without room in the queue. */
function droppedIn([text]: Report): number {
  return Number(/^Dropped (\d+) spans/.exec(String(text))?.[1] ?? 0);
}

/** Returns the `rejectedSpans` that a warning of the SDK reports: sent spans that a collector did not accept. */
function rejectedIn([, details]: Report): number {
  return Number(jsonIn(details).rejectedSpans ?? 0);
}

/** Sends spans, and counts those that could not be sent. The SDK reports the error, but not their number. */
class CountingExporter extends OTLPTraceExporter {
  #lost = 0;
  /** Number of spans that a collector has received. */
  sent = 0;

  override export(...[spans, done]: Parameters<OTLPTraceExporter['export']>): void {
    super.export(spans, (result) => {
      if (result.error === undefined) this.sent += spans.length;
      else this.#lost += spans.length;
      done(result);
    });
  }

  /** Returns the number of spans lost since the last call. */
  takeLost(): number {
    const lost = this.#lost;
    this.#lost = 0;
    return lost;
  }
}

/** Counts the spans to be sent: the SDK ignores those that end after its shutdown, or find no room in its queue. */
class CountingProcessor extends BatchSpanProcessor {
  ended = 0;

  override onEnd(span: ReadableSpan): void {
    if ((span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0) this.ended += 1;
    super.onEnd(span);
  }
}

/** Receives the errors and warnings of the SDK from now on. */
function receive(error: (problem: string) => void, warn: (problem: string, report: Report) => void): void {
  const silent = (): void => undefined;
  diag.setLogger(
    {
      error: (...report) => error(textOf(report)),
      warn: (...report) => warn(textOf(report), report),
      info: silent,
      debug: silent,
      verbose: silent,
    },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
}

/**
 * Starts OpenTelemetry tracing over OTLP. The SDK reads endpoint, sampling ratio and service name from the
 * standard OTEL_* variables.
 */
export function startTracing({ onMisconfigured, onWarning, onSpansLost }: TracingReports): Tracing {
  receive(onMisconfigured, onMisconfigured);
  const exporter = new CountingExporter();
  const processor = new CountingProcessor(exporter);
  const own = resourceFromAttributes({ 'service.name': 'plant-store', 'service.version': version });
  const provider = new NodeTracerProvider({
    resource: own.merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [processor],
  });
  provider.register();
  // With the configuration read, the SDK reports only failed exports as errors.
  let unsent = 0;
  function reportUnsent(problem: string, spans: number): void {
    unsent += spans;
    onSpansLost(problem, spans);
  }
  const reportFailure = (problem: string): void => reportUnsent(problem, exporter.takeLost());
  receive(reportFailure, (problem, report) => {
    const dropped = droppedIn(report);
    const rejected = rejectedIn(report);
    if (dropped > 0) reportUnsent(problem, dropped);
    else if (rejected > 0) onSpansLost(problem, rejected);
    else onWarning(problem);
  });
  const tracer = provider.getTracer('plant-store', version);
  const contexts = new WeakMap<FastifyRequest, Context>();

  // A request's span omits path, query and headers, since these may identify the plant or the caller.
  function begin(request: FastifyRequest): void {
    const { method, headers, protocol, routeOptions } = request;
    const route = routeOptions.url;
    const isKnown = KNOWN_METHODS.includes(method);
    const parent = propagation.extract(ROOT_CONTEXT, headers);
    const attributes = {
      'http.request.method': isKnown ? method : '_OTHER',
      ...(!isKnown && { 'http.request.method_original': method }),
      'url.scheme': protocol,
      'network.protocol.version': request.raw.httpVersion,
      'plant_store.request_id': request.id,
      ...(route !== undefined && { 'http.route': route }),
    };
    const shownMethod = isKnown ? method : 'HTTP';
    const name = route === undefined ? shownMethod : `${shownMethod} ${route}`;
    const span = tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, parent);
    contexts.set(request, trace.setSpan(parent, span));
    request.traceId = span.spanContext().traceId;
  }

  // Sets the status ERROR only for a 5xx response, as the OpenTelemetry conventions for HTTP server spans
  // specify.
  function endSpan(request: FastifyRequest, status: number | undefined): void {
    const span = trace.getSpan(contexts.get(request) ?? ROOT_CONTEXT);
    if (status !== undefined) span?.setAttribute('http.response.status_code', status);
    if (status === undefined) span?.setAttribute('error.type', 'client_went_away');
    else if (status >= 500)
      span?.setAttribute('error.type', String(status)).setStatus({ code: SpanStatusCode.ERROR });
    span?.end();
    contexts.delete(request);
  }

  function traceRequests(app: FastifyInstance): void {
    app.addHook('onRequest', (request, _reply, done) => {
      begin(request);
      // A pipelined request starts in the context of the previous one, which may be of another caller.
      context.with(ROOT_CONTEXT, done);
    });
    // Restores the tracing context after the body was read: the events of the body stream lose that context.
    app.addHook(
      'preValidation',
      (request: FastifyRequest, _reply: FastifyReply, done: HookHandlerDoneFunction) => {
        context.with(contexts.get(request) ?? ROOT_CONTEXT, done);
      },
    );
  }

  function traceStore(store: Store): Store {
    return {
      ...store,
      write: async (write) => {
        const parent = context.active();
        if (trace.getSpan(parent) === undefined) return store.write(write);
        const span = tracer.startSpan(`store ${write.kind}`, {}, parent);
        try {
          const outcome = await store.write(write);
          span.setAttribute('plant_store.outcome', outcome);
          return outcome;
        } catch (error: unknown) {
          span.setStatus({ code: SpanStatusCode.ERROR });
          throw error;
        } finally {
          span.end();
        }
      },
    };
  }

  // The SDK reports no error of the spans that it sends at its shutdown, but rejects at the first of several batches.
  async function close(maxMs: number): Promise<void> {
    const shutdown = provider.shutdown().catch(async (error: unknown) => {
      await exporter.forceFlush();
      reportFailure(textOf([error]));
    });
    // The SDK reports a failed export only after its end.
    await within(
      maxMs,
      shutdown.then(() => setImmediate()),
    );
    const left = processor.ended - exporter.sent - unsent;
    if (left > 0) onSpansLost('no room in the queue, or no response before the stop', left);
  }

  return { traceRequests, endSpan, traceStore, close };
}
