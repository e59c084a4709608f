import { ConfigInvalid } from '../../config.ts';

/**
 * OpenTelemetry variables that enable or disable traces, with their defaults. OpenTelemetry's SDK reads
 * further variables itself.
 */
export const otelVariables = {
  OTEL_EXPORTER_OTLP_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '',
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
  OTEL_TRACES_EXPORTER: 'otlp',
  OTEL_SDK_DISABLED: 'false',
} as const;

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
  return true;
}
