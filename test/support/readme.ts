import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import manifest from '../../package.json' with { type: 'json' };
import { freshFolder } from './engines.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const README = await readFile(join(ROOT, 'README.md'), 'utf8');

/** A fenced code block of README.md. */
interface Block {
  readonly language: string;
  readonly text: string;
}

/** Commands in a code block of README.md, and their output from the next block. */
interface Step {
  readonly command: string;
  readonly shown: string | undefined;
}

interface Program {
  readonly child: ChildProcess;
  readonly url: string;
  readonly databaseUrl: string;
  /** Output of the program until it was ready, without log lines. */
  readonly printed: string;
}

export function section(title: string): string {
  const [, text = ''] = README.split(`\n## ${title}\n`);
  return text.split('\n## ')[0] ?? '';
}

export function blocks(markdown: string): Block[] {
  return [...markdown.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map(([, language = '', text = '']) => ({
    language,
    text,
  }));
}

function steps(markdown: string): Step[] {
  const all = blocks(markdown);
  return all.flatMap(({ language, text }, index) => {
    if (language !== 'sh') return [];
    const next = all[index + 1];
    return [{ command: text, shown: next?.language === 'sh' ? undefined : next?.text }];
  });
}

/**
 * Returns a pattern for a text of README.md. `…` in a line matches any text; a line with only `…` matches any
 * lines.
 */
export function asPattern(shown: string): string {
  return shown
    .trimEnd()
    .split('\n')
    .map((line) => (line === '…' ? '(?:.*\n)*?' : `${line.split('…').map(RegExp.escape).join('.+')}\n`))
    .join('');
}

/** Makes commands behave as on a terminal, where they print messages in addition to the result. */
const ON_A_TERMINAL = {
  NODE_OPTIONS: '--import=data:text/javascript,process.stderr.isTTY=true',
  NPM_CONFIG_PROGRESS: 'false',
};

/** Starts the program as `npm start` does, with a new store and free ports. It stops after the test. */
export async function startProgram(t: Pick<TestContext, 'after'>): Promise<Program> {
  const [program, ...args] = manifest.scripts.start.split(' ');
  assert.equal(program, 'node');
  const databaseUrl = `sqlite:${join(await freshFolder(), 'data', 'plants.db')}`;
  const { NODE_ENV: _, ...environment } = process.env;
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env: { ...environment, PORT: '0', ADMIN_PORT: '0', DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  let url = '';
  let printed = '';
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith('{')) printed += `${line}\n`;
    else if (line.includes('"msg":"serving"')) ({ url } = JSON.parse(line) as { url: string });
    // Waits for the log line and the welcome text, which may come in either order.
    if (url !== '' && printed.includes('-X DELETE')) break;
  }
  assert.notEqual(url, '', `it prints its address; got: ${printed}`);
  child.stdout.resume();
  return { child, url, databaseUrl, printed };
}

export async function stop(child: ChildProcess): Promise<void> {
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'exit'), [0, null]);
}

export async function runScript(script: string, databaseUrl: string): Promise<string> {
  const file = join(await freshFolder(), 'script.sh');
  await writeFile(file, `exec 2>&1\n${script}`);
  const { stdout } = await promisify(execFile)('bash', ['-e', file], {
    cwd: ROOT,
    env: { ...process.env, ...ON_A_TERMINAL, DATABASE_URL: databaseUrl },
  });
  return stdout.replaceAll('\r', '');
}

/**
 * Runs the steps of "First requests" in README.md on a new store, `times` times. Compares each output with
 * README.md.
 */
export async function runFirstRequests(t: Pick<TestContext, 'after'>, times: number): Promise<void> {
  const { child, url, databaseUrl, printed } = await startProgram(t);
  const [token = ''] = /plt_\w+/.exec(printed) ?? [];
  const [names, ...rest] = steps(section('First requests'));
  assert.match(names?.command ?? '', /^URL=.*\nTOKEN=.*\n$/);
  assert.ok(rest.length >= 5, 'README has the steps');

  const end = '--- end of step ---';
  const script = rest.map(({ command }) => `${command}\nprintf '\\n%s\\n' '${end}'\n`).join('');
  for (let run = 1; run <= times; run += 1) {
    const output = await runScript(`URL='${url}'\nTOKEN='${token}'\n${script}`, databaseUrl);
    const answers = output.split(`\n${end}\n`);
    for (const [index, { command, shown }] of rest.entries()) {
      assert.ok(shown !== undefined, `README has the output of ${command}`);
      assert.match(`${answers[index]}\n`, new RegExp(`^${asPattern(shown)}\n*$`), `time ${run}: ${command}`);
    }
  }
  await stop(child);
}
