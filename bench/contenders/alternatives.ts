import { execFile } from 'node:child_process';
import { stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { messageOf } from '../../src/api-errors.ts';
import { freePort } from '../../test/support/servers/free-port.ts';
import { examplePlants } from './example-plants.ts';
import { type ServerProcess, startServerProcess } from './server-process.ts';
import type { RunningSubject, Subject } from './subject.ts';

const FOLDER = join(import.meta.dirname, './alternatives');
const JSON_SERVER = join(FOLDER, 'node_modules/json-server/lib/cli/bin.js');

const json = { 'content-type': 'application/json' };

const fastifyBetterSqlite3: Subject = {
  name: 'Fastify, better-sqlite3',
  start: async (folder) => {
    const args = [join(FOLDER, 'fastify-better-sqlite3.js'), join(folder, 'plants.db')];
    return filled(await startServerProcess(args, join(folder, 'log'), 'signal'), (target) => target);
  },
};

export const platformaticDb: Subject = {
  name: 'Platformatic DB',
  start: async (folder) => {
    const args = [join(FOLDER, 'platformatic-db.js'), folder];
    return filled(await startServerProcess(args, join(folder, 'log'), 'signal'), (target) =>
      target.replace('limit=', 'fields=name,tag&limit='),
    );
  },
};

export const jsonServer: Subject = {
  name: 'json-server',
  start: async (folder) => {
    const file = join(folder, 'plants.json');
    await writeFile(file, JSON.stringify({ plants: [] }));
    const port = await freePort();
    const args = [JSON_SERVER, '--host', '127.0.0.1', '--port', String(port), '--quiet', file];
    const url = `http://127.0.0.1:${port}`;
    return filled(await startServerProcess(args, join(folder, 'log'), 'signal', url), (target) =>
      target.replace('limit=', '_limit='),
    );
  },
};

/** Software that people could choose instead of our service. */
export const alternatives: readonly Subject[] = [fastifyBetterSqlite3, platformaticDb, jsonServer];

/**
 * Installs the alternatives to our service, unless the installation matches the lock file. Resolves to an
 * error message if the installation fails.
 */
export async function installAlternatives(signal: AbortSignal): Promise<string | undefined> {
  if (await areInstalled()) return undefined;
  process.stderr.write('installing the alternatives …\n');
  try {
    // Skips install scripts, which would build or download software.
    await promisify(execFile)('npm', ['ci', '--ignore-scripts'], { cwd: FOLDER, signal });
    return undefined;
  } catch (error: unknown) {
    return messageOf(error);
  }
}

/**
 * npm writes its hidden lock file last. After an interrupted install the file is missing; after an update of
 * our lock file it is older than our file.
 */
async function areInstalled(): Promise<boolean> {
  const lock = await stat(join(FOLDER, 'package-lock.json'));
  const installed = await stat(join(FOLDER, 'node_modules/.package-lock.json')).catch(() => undefined);
  return installed !== undefined && installed.mtimeMs >= lock.mtimeMs;
}

async function filled(
  { stop, ...server }: ServerProcess,
  targetOf: RunningSubject['targetOf'],
): Promise<RunningSubject> {
  for (const plant of examplePlants()) {
    const answer = await fetch(`${server.url}${targetOf('/plants')}`, {
      method: 'POST',
      headers: json,
      body: JSON.stringify(plant),
    });
    if (!answer.ok)
      throw new Error(`${server.url} rejected an example plant: ${answer.status} ${await answer.text()}`);
    await answer.arrayBuffer();
  }
  return { ...server, headers: {}, targetOf, prepare: async () => {}, close: stop };
}
