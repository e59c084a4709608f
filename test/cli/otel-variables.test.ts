import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wantsTraces, warningsOf } from '../../src/cli/settings/otel-variables.ts';
import { ConfigInvalid } from '../../src/config.ts';

const ENDPOINT = 'http://127.0.0.1:4318';

test('OTEL_* variables → enable or disable traces', () => {
  const on = [
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT },
    { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ENDPOINT },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_SDK_DISABLED: 'false', OTEL_TRACES_EXPORTER: 'otlp' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf' },
    {
      OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/protobuf',
    },
    {
      OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT,
      OTEL_BSP_MAX_QUEUE_SIZE: '1',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
    },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_BSP_SCHEDULE_DELAY: '0', OTEL_BSP_EXPORT_TIMEOUT: '1' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_BSP_SCHEDULE_DELAY: '2147483647' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_BSP_SCHEDULE_DELAY: '', OTEL_BSP_MAX_QUEUE_SIZE: ' ' },
  ];
  // By the specification of OpenTelemetry, an empty variable counts as unset.
  const off = [
    {},
    { OTEL_EXPORTER_OTLP_ENDPOINT: '' },
    { OTEL_SERVICE_NAME: 'herbarium' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_SDK_DISABLED: 'true' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_SDK_DISABLED: 'TRUE' },
    { OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, OTEL_TRACES_EXPORTER: 'none' },
    { OTEL_BSP_MAX_QUEUE_SIZE: '0' },
  ];
  for (const environment of on) assert.equal(wantsTraces(environment), true, JSON.stringify(environment));
  for (const environment of off) assert.equal(wantsTraces(environment), false, JSON.stringify(environment));
});

test('unsupported value of an OTEL_* variable → rejected at the start, by name', () => {
  for (const [name, value] of [
    ['OTEL_TRACES_EXPORTER', 'zipkin'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', '127.0.0.1:4318'],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'collector'],
    // With these, OpenTelemetry's SDK sends nothing, or starts timers of 1 ms.
    ['OTEL_BSP_MAX_QUEUE_SIZE', '0'],
    ['OTEL_BSP_MAX_QUEUE_SIZE', '-1'],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '0'],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '0.5'],
    ['OTEL_BSP_SCHEDULE_DELAY', '2147483648'],
    ['OTEL_BSP_SCHEDULE_DELAY', '5s'],
    ['OTEL_BSP_EXPORT_TIMEOUT', '2147483648'],
    ['OTEL_BSP_EXPORT_TIMEOUT', '0'],
  ] as const) {
    assert.throws(
      () => wantsTraces({ OTEL_EXPORTER_OTLP_ENDPOINT: ENDPOINT, [name]: value }),
      (error: Error) => error instanceof ConfigInvalid && error.message.startsWith(`${name} `),
      `${name}=${value}`,
    );
  }
});

test('headers for the collector → a warning for each variable with members that the SDK ignores', () => {
  for (const [headers, ignored] of [
    ['', 0],
    ['api-key=a%20b', 0],
    [' api-key = a , b=c=d,', 0],
    ['api-key', 1],
    ['=a,api-key=,api-key', 3],
    ['api-key=50%', 1],
    ['a%=b,c=d', 1],
    // The SDK cuts this value off at the semicolon.
    ['api-key=a;b', 1],
  ] as const)
    for (const name of ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS']) {
      const warnings = warningsOf({ [name]: headers });
      assert.equal(warnings.length, ignored === 0 ? 0 : 1, headers);
      if (ignored > 0)
        assert.match(warnings.join(), new RegExp(`^${name}: ${ignored} of \\d .*; write NAME=VALUE`));
    }
});
