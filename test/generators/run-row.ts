import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { cp, mkdir, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { operations } from '../../src/http/app.ts';
import { renderOpenApi } from '../../src/http/openapi.ts';
import { engines, freshFolder, type TestEngine } from '../support/engines.ts';
import { freePort } from '../support/servers/free-port.ts';
import { startService } from '../support/service.ts';
import { readSections } from './documented-commands.ts';
import type { Row } from './rows.ts';

/** The URL in the commands of the page. */
const DOCUMENTED_URL = 'http://127.0.0.1:8080';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PROGRAMS = fileURLToPath(new URL('programs/', import.meta.url));

/** Time limit for a command; a first build downloads its dependencies. */
const PATIENCE_MS = 900_000;

/** The output of every program: two ids beyond 2^53, their neighbour, and pages of one plant. */
const OUTPUT = `created Fern, Polypodium
created Black alder, no tag
error 400 40002
page Fern
page Black alder
error 404 40400
deleted
deleted
left 0
`;

/** Environment and port that all rows share. */
export interface Workplace {
  readonly env: NodeJS.ProcessEnv;
  /** The address of every service, which clients may have compiled in. */
  readonly port: number;
}

/** Creates a virtual environment for the packages of Python, with a `PATH` that begins with it and with this Node. */
export async function withWorkplace<T>(work: (workplace: Workplace) => Promise<T>): Promise<T> {
  const folder = await freshFolder();
  const path = [join(folder, 'python', 'bin'), dirname(process.execPath), process.env.PATH].join(delimiter);
  const env = { ...process.env, PATH: path, ROOT, PIP_DISABLE_PIP_VERSION_CHECK: '1', NO_COLOR: '1' };
  if (isOnPath('python3')) await runShell('python3 -m venv python', folder, env);
  return work({ env, port: await freePort() });
}

/** Returns the programs that a row needs and this machine lacks. */
export function missingOf({ needs }: Row): string[] {
  return needs.filter((program) => !isOnPath(program));
}

function isOnPath(program: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Runs the commands of the page, compiles, and runs the program on each engine. Resolves to what was done. */
export async function runRow(row: Row, { env, port }: Workplace): Promise<string> {
  const folder = await freshFolder();
  const url = `http://127.0.0.1:${port}`;
  await writeFile(join(folder, 'openapi.json'), renderOpenApi(operations, url));
  for (const [name, content] of Object.entries(row.files ?? {})) await writeFile(join(folder, name), content);
  const sections = await readSections();
  for (const heading of row.sections) {
    const section = sections.get(heading);
    if (section === undefined) throw new Error(`docs/generated-clients.md has no section ${heading}`);
    for (const [name, content] of section.files) {
      await writeFile(join(folder, name), content.replaceAll(DOCUMENTED_URL, url));
    }
    await runShell(section.commands.replaceAll(DOCUMENTED_URL, url), folder, env);
  }
  const { program } = row;
  if (program !== undefined) {
    const target = join(folder, program.target);
    await mkdir(dirname(target), { recursive: true });
    await cp(join(PROGRAMS, program.source), target);
  }
  await runShell(row.build, folder, env);
  if (program === undefined) return row.done;
  for (const engine of engines) await runProgram(program.run, engine, { folder, env, port });
  return `${row.done}; ran on ${engines.map(({ name }) => name).join(' and ')}`;
}

async function runProgram(
  command: string,
  engine: TestEngine,
  { folder, env, port }: Workplace & { readonly folder: string },
): Promise<void> {
  await using ending = new AsyncDisposableStack();
  const lifetime = { after: (work: () => unknown) => ending.defer(async () => void (await work())) };
  const service = await startService(lifetime, await engine.freshUrl(lifetime), { port: String(port) });
  const variables = { ...env, URL: service.url, TOKEN: await service.token() };
  const output = await runShell(command, folder, variables);
  if (output !== OUTPUT) throw new Error(`on ${engine.name} the program printed\n${output}`);
}

/** Runs shell commands until the first that fails. Resolves to stdout; rejects with the whole output. */
async function runShell(commands: string, cwd: string, env: NodeJS.ProcessEnv): Promise<string> {
  const child = spawn('bash', ['-euo', 'pipefail', '-c', commands], {
    cwd,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  });
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  if (code === 0) return stdout;
  throw new Error(`${commands.trim()}\nended with ${code ?? 'a timeout'}\n${tail(stdout)}${tail(stderr)}`);
}

function tail(output: string): string {
  return output.slice(-8_000);
}
