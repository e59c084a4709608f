// cspell:words DATABSE BODYLIMIT PGHOST URLFILE EXPORTR
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flagsTakenByNpm, misspelledVariables } from '../../src/cli/settings/environment-variables.ts';
import { settings, variableOf } from '../../src/config.ts';

for (const [given, meant] of [
  ['DATABSE_URL', 'DATABASE_URL'],
  ['DATABASE_ULR', 'DATABASE_URL'],
  ['DATABASE_URLS', 'DATABASE_URL'],
  ['DATABASE-URL', 'DATABASE_URL'],
  ['BODYLIMIT', 'BODY_LIMIT'],
  ['log_level', 'LOG_LEVEL'],
  ['DATABASE_URL_FIL', 'DATABASE_URL_FILE'],
  ['DATABASE_URLFILE', 'DATABASE_URL_FILE'],
  ['NODE_EVN', 'NODE_ENV'],
  ['OTEL_TRACES_EXPORTR', 'OTEL_TRACES_EXPORTER'],
] as const) {
  test(`${given} → did you mean ${meant}`, () => {
    assert.deepEqual(misspelledVariables({ [given]: 'x' }), [[given, meant]]);
  });
}

test('variables of settings and of other programs → none', () => {
  const known = settings.map((setting) => [variableOf(setting), 'x']);
  const others = [
    'PATH',
    'HOSTNAME',
    'HOSTS',
    'PORTS',
    'POST',
    'PGHOST',
    'NODE_ENV',
    'DATABASE_URL_FILE',
    'OTEL_TRACES_EXPORTER',
    'OTEL_METRICS_EXPORTER',
    'OTEL_EXPORTER_OTLP_METRICS_ENDPOINT',
    'TLS',
    'DATABASE',
    'LOG',
    'npm_config_port',
  ];
  assert.deepEqual(
    misspelledVariables(Object.fromEntries([...known, ...others.map((name) => [name, 'x'])])),
    [],
  );
});

test('flags before `--` of `npm start` → found in the variables that npm makes of them', () => {
  const environment = { npm_config_port: '9000', npm_config_admin_port: '', npm_config_loglevel: 'error' };
  assert.deepEqual(flagsTakenByNpm({ ...environment, npm_lifecycle_event: 'start' }), [
    '--port',
    '--admin-port',
  ]);
  assert.deepEqual(flagsTakenByNpm(environment), []);
});
