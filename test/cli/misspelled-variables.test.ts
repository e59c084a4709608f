// cspell:words DATABSE BODYLIMIT PGHOST
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { misspelledVariables } from '../../src/cli/settings/misspelled-variables.ts';
import { settings, variableOf } from '../../src/config.ts';

for (const [given, meant] of [
  ['DATABSE_URL', 'DATABASE_URL'],
  ['DATABASE_ULR', 'DATABASE_URL'],
  ['DATABASE_URLS', 'DATABASE_URL'],
  ['DATABASE-URL', 'DATABASE_URL'],
  ['BODYLIMIT', 'BODY_LIMIT'],
  ['log_level', 'LOG_LEVEL'],
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
