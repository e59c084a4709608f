import { ConfigInvalid } from '../../config.ts';

/**
 * OpenTelemetry variables that enable or disable traces or limit the queue of spans, with their defaults.
 * OpenTelemetry's SDK reads further variables itself.
 */
export const otelVariables = {
  OTEL_EXPORTER_OTLP_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: '',
  OTEL_TRACES_EXPORTER: 'otlp',
  OTEL_SDK_DISABLED: 'false',
  OTEL_BSP_MAX_QUEUE_SIZE: '2048',
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '512',
  OTEL_BSP_SCHEDULE_DELAY: '5000',
  OTEL_BSP_EXPORT_TIMEOUT: '30000',
} as const;

/**
 * Numbers with their minimum. The SDK checks none: from a queue of 0 spans it sends nothing, and with batches of 0 it
 * runs out of memory.
 */
const MINIMA = [
  ['OTEL_BSP_MAX_QUEUE_SIZE', 1],
  ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 1],
  ['OTEL_BSP_SCHEDULE_DELAY', 0],
  ['OTEL_BSP_EXPORT_TIMEOUT', 1],
] as const;

/** The longest timer of Node in milliseconds: a longer one takes 1 ms. */
const MAX_NUMBER = 2 ** 31 - 1;

/** Headers of the requests to a collector, which often have its key. */
const HEADERS = ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS'] as const;

type OtelEnvironment = {
  readonly [Name in keyof typeof otelVariables | (typeof HEADERS)[number]]?: string | undefined;
};

/**
 * True if OpenTelemetry's standard variables enable traces: they set an endpoint and do not disable traces.
 * Throws ConfigInvalid for unsupported values.
 */
export function wantsTraces(environment: OtelEnvironment): boolean {
  const exporter = environment.OTEL_TRACES_EXPORTER || otelVariables.OTEL_TRACES_EXPORTER;
  const protocol = forTraces(environment, 'PROTOCOL');
  const { source, value: endpoint } = forTraces(environment, 'ENDPOINT');
  if (!endpoint || exporter === 'none' || environment.OTEL_SDK_DISABLED?.toLowerCase() === 'true')
    return false;
  if (exporter !== 'otlp')
    throw new ConfigInvalid(`OTEL_TRACES_EXPORTER is ${JSON.stringify(exporter)}; it must be otlp or none`);
  if (protocol.value !== 'http/protobuf')
    throw new ConfigInvalid(
      `${protocol.source} is ${JSON.stringify(protocol.value)}; it must be http/protobuf, usually on port 4318`,
    );
  // The error message leaves out the URL, which may contain a password.
  if (!/^https?:/.test(endpoint) || !URL.canParse(endpoint))
    throw new ConfigInvalid(`${source} must be an http or https URL, such as http://127.0.0.1:4318`);
  checkNumbers(environment);
  return true;
}

/** Returns the value that counts for traces, and its variable: the one for traces alone wins. */
function forTraces(environment: OtelEnvironment, what: 'ENDPOINT' | 'PROTOCOL') {
  const general = `OTEL_EXPORTER_OTLP_${what}` as const;
  const specific = `OTEL_EXPORTER_OTLP_TRACES_${what}` as const;
  const source = environment[specific] ? specific : general;
  return { source, value: environment[source] || otelVariables[source] };
}

/**
 * Returns a warning for each variable with headers that the SDK ignores without one. It quotes no header, which may be
 * secret.
 */
export function warningsOf(environment: OtelEnvironment): readonly string[] {
  return HEADERS.flatMap((name) => {
    const headers = (environment[name] ?? '').split(',').filter((header) => header.trim() !== '');
    const ignored = headers.filter((header) => !isUsableHeader(header)).length;
    if (ignored === 0) return [];
    return [
      `${name}: ${ignored} of ${headers.length} headers ignored or cut off; write NAME=VALUE, percent-encoded, without semicolons`,
    ];
  });
}

// The SDK cuts a header off at a semicolon.
function isUsableHeader(header: string): boolean {
  if (!/^\s*[^=;\s][^=;]*=\s*[^;\s][^;]*$/.test(header)) return false;
  try {
    decodeURIComponent(header);
    return true;
  } catch {
    return false;
  }
}

function checkNumbers(environment: OtelEnvironment): void {
  for (const [name, minimum] of MINIMA) {
    const text = environment[name]?.trim() || otelVariables[name];
    const value = Number(text);
    if (!Number.isInteger(value) || value < minimum || value > MAX_NUMBER)
      throw new ConfigInvalid(
        `${name} is ${JSON.stringify(text)}; it must be an integer from ${minimum} to ${MAX_NUMBER}, such as ${otelVariables[name]}`,
      );
  }
}
