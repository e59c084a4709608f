import { execFile } from 'node:child_process';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { codeOf, messageOf } from '../../src/thrown-errors.ts';
import { freePort } from '../../test/support/servers/free-port.ts';
import { examplePlants } from './example-plants.ts';
import { startForeignServer, startServerProcess } from './server-process.ts';
import type { RunningSubject, Subject } from './subject.ts';

const FOLDER = join(import.meta.dirname, './alternatives');
const POCKETBASE = join(FOLDER, 'pocketbase');
const JSON_SERVER = join(FOLDER, 'node_modules/json-server/lib/cli/bin.js');

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

export const pocketBase: Subject = {
  name: 'PocketBase',
  start: async (folder) => {
    const server = await startForeignServer(
      join(POCKETBASE, 'dist/pocketbase'),
      [folder],
      join(folder, 'log'),
    );
    const authorization = await readFile(join(folder, 'token'), 'utf8');
    return filled(
      { ...server, usage: async () => undefined },
      (target) =>
        target
          .replace('/plants', '/api/collections/plants/records')
          .replace('limit=', 'skipTotal=true&perPage='),
      { authorization },
    );
  },
};

/** Software that people could choose instead of our service, and how to install it. */
const alternatives = [
  { subjects: [fastifyBetterSqlite3, platformaticDb, jsonServer], tool: 'npm', install: installPackages },
  { subjects: [pocketBase], tool: 'Go', install: buildPocketBase },
];

/**
 * Installs the alternatives to our service. Returns the installed ones; for each failure, logs the reason.
 */
export async function installAlternatives(signal: AbortSignal): Promise<readonly Subject[]> {
  const installed: Subject[] = [];
  for (const { subjects, tool, install } of alternatives) {
    try {
      await install(signal);
      installed.push(...subjects);
    } catch (error: unknown) {
      signal.throwIfAborted();
      const names = subjects.map(({ name }) => name).join('; ');
      process.stderr.write(`${names}: ${codeOf(error) === 'ENOENT' ? `needs ${tool}` : messageOf(error)}\n`);
    }
  }
  return installed;
}

/** Builds PocketBase from its Go module. Go itself skips a build that is up to date. */
async function buildPocketBase(signal: AbortSignal): Promise<void> {
  const build = promisify(execFile)('go', ['build', '-o', 'dist/pocketbase'], { cwd: POCKETBASE, signal });
  build.child.once('spawn', () => process.stderr.write('building PocketBase …\n'));
  await build;
}

/** Installs the packages, unless the installation matches the lock file. */
async function installPackages(signal: AbortSignal): Promise<void> {
  if (await areInstalled()) return;
  process.stderr.write('installing the alternatives …\n');
  // Skips install scripts, which would build or download software.
  await promisify(execFile)('npm', ['ci', '--ignore-scripts'], { cwd: FOLDER, signal });
}

/**
 * True if npm's hidden lock file exists and is not older than the repository's lock file. npm writes its file
 * last, so an interrupted install leaves none.
 */
async function areInstalled(): Promise<boolean> {
  const lock = await stat(join(FOLDER, 'package-lock.json'));
  const installed = await stat(join(FOLDER, 'node_modules/.package-lock.json')).catch(() => undefined);
  return installed !== undefined && installed.mtimeMs >= lock.mtimeMs;
}

async function filled(
  { stop, ...server }: Pick<RunningSubject, 'url' | 'pid' | 'usage'> & { stop(): Promise<void> },
  targetOf: RunningSubject['targetOf'],
  headers: RunningSubject['headers'] = {},
): Promise<RunningSubject> {
  for (const plant of examplePlants()) {
    const answer = await fetch(`${server.url}${targetOf('/plants')}`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(plant),
    });
    if (!answer.ok)
      throw new Error(`${server.url} rejected an example plant: ${answer.status} ${await answer.text()}`);
    await answer.arrayBuffer();
  }
  return { ...server, headers, targetOf, prepare: async () => {}, close: stop };
}
