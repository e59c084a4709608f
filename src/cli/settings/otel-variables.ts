import { ConfigInvalid } from '../../config.ts';

/**
 * OpenTelemetry variables that enable or disable traces or limit the queue of spans, with their defaults.
 * OpenTelemetry's SDK reads further variables itself.
 */
export const otelVariables = {
  OTEL_EXPORTER_OTLP_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
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

type OtelEnvironment = { readonly [Name in keyof typeof otelVariables]?: string | undefined };

/**
 * True if OpenTelemetry's standard variables enable traces: they set an endpoint and do not disable traces.
 * Throws ConfigInvalid for unsupported values.
 */
export function wantsTraces(environment: OtelEnvironment): boolean {
  const exporter = environment.OTEL_TRACES_EXPORTER || otelVariables.OTEL_TRACES_EXPORTER;
  const protocol = environment.OTEL_EXPORTER_OTLP_PROTOCOL || otelVariables.OTEL_EXPORTER_OTLP_PROTOCOL;
  const endpoint = environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || environment.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (!endpoint || exporter === 'none' || environment.OTEL_SDK_DISABLED?.toLowerCase() === 'true')
    return false;
  if (exporter !== 'otlp')
    throw new ConfigInvalid(`OTEL_TRACES_EXPORTER is ${JSON.stringify(exporter)}; it must be otlp or none`);
  if (protocol !== 'http/protobuf')
    throw new ConfigInvalid(
      `OTEL_EXPORTER_OTLP_PROTOCOL is ${JSON.stringify(protocol)}; it must be http/protobuf, usually on port 4318`,
    );
  // The error message leaves out the URL, which may contain a password.
  if (!/^https?:/.test(endpoint) || !URL.canParse(endpoint)) {
    const source = environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
      ? 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'
      : 'OTEL_EXPORTER_OTLP_ENDPOINT';
    throw new ConfigInvalid(`${source} must be an http or https URL, such as http://127.0.0.1:4318`);
  }
  checkNumbers(environment);
  return true;
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
