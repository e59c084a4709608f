import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import { variables } from '../../src/cli/settings/environment-variables.ts';

export const ROOT = join(import.meta.dirname, '../..');

export const run = promisify(execFile);

export function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** A value in a YAML file, with anchors and merges resolved. */
export type Yaml = string | number | boolean | null | readonly Yaml[] | YamlMap;
export interface YamlMap {
  readonly [key: string]: Yaml;
}

/** Reads all documents of a YAML file. Fails on an error or a warning of the parser. */
export function readYaml(path: string): readonly YamlMap[] {
  const documents = parseAllDocuments(read(path), { merge: true });
  assert.ok(Array.isArray(documents), `${path} is empty`);
  return documents.map((document) => {
    assert.deepEqual([...document.errors, ...document.warnings], [], path);
    const value: Yaml = document.toJS();
    return mapOf(value);
  });
}

export function mapOf(value: Yaml | undefined): YamlMap {
  assert.ok(typeof value === 'object' && value !== null && !isList(value), 'not a map');
  return value;
}

export function listOf(value: Yaml | undefined): readonly Yaml[] {
  assert.ok(value !== undefined && isList(value), 'not a list');
  return value;
}

export function textOf(value: Yaml | undefined): string {
  assert.ok(typeof value === 'string', 'not a string');
  return value;
}

function isList(value: Yaml): value is readonly Yaml[] {
  return Array.isArray(value);
}

export function assertVariables(environment: Readonly<Record<string, string>>): void {
  for (const name of Object.keys(environment)) assert.ok(variables.includes(name), `unknown setting ${name}`);
}
