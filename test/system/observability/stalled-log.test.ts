import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { needs } from '../../support/needs.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { endOf, type LogLine, newInstallation, type Program } from '../../support/program.ts';
import { bearer } from '../../support/service.ts';

/** More lines than the pipe and the buffer for `answered` lines can hold. */
const REQUESTS = 4_500;
const AT_ONCE = 50;

/** Requests whose lines fill the pipe several times. None is dropped. */
const SLOW_REQUESTS = 3_000;
/** Pause of a slow reader each time it has emptied the pipe. Together, the pauses are longer than the wait for an idle reader. */
const PAUSE_MS = 125;

describe('the log is not read any more', needs('FIFOs', process.platform !== 'win32'), () => {
  it('requests and shutdown continue; audit lines are kept, dropped lines are counted', async (t) => {
    const piped = await serveIntoPipe(t);
    const { program, url, adminUrl } = piped;
    assert.equal(await statusOfAll(`${url}/openapi.json`, REQUESTS), 200);
    assert.equal((await fetch(`${url}/plants`, { headers: bearer('none') })).status, 401);
    assert.equal((await fetch(`${adminUrl}/live`)).status, 200);
    const dropped = await droppedAt(adminUrl);
    assert.ok(dropped > 0 && dropped < REQUESTS, String(dropped));

    const lines: LogLine[] = [];
    const report = await readLine(
      piped,
      ({ msg }) => String(msg).startsWith('log lines were dropped'),
      lines,
    );
    assert.deepEqual([report.level, report.lines], [40, dropped]);
    assert.ok(lines.some(({ audit }) => audit === 'tokenRefused'));
    assert.equal(lines.filter(({ msg }) => msg === 'answered').length, REQUESTS + 1 - dropped);
    assert.equal(await droppedAt(adminUrl), dropped);

    // Fills the pipe again, for the shutdown.
    assert.equal(await statusOfAll(`${url}/openapi.json`, 1_000), 200);
    program.kill('SIGTERM');
    const { code, stderr } = await endOf(program);
    assert.deepEqual([code, stderr], [0, '']);
  });

  it('lines were dropped, and the reader goes on during the shutdown → their number comes before the last line', async (t) => {
    const piped = await serveIntoPipe(t);
    const { program, url, adminUrl } = piped;
    assert.equal(await statusOfAll(`${url}/openapi.json`, REQUESTS), 200);
    const dropped = await droppedAt(adminUrl);
    program.kill('SIGTERM');
    const lines: LogLine[] = [];
    await readLine(piped, ({ msg }) => msg === 'stopped', lines);
    const reports = lines.filter(({ msg }) => String(msg).startsWith('log lines were dropped'));
    assert.deepEqual(
      reports.map((line) => line.lines),
      [dropped],
    );
    assert.equal((await endOf(program)).code, 0);
  });

  it('slow reader during the shutdown → gets all lines', async (t) => {
    const piped = await serveIntoPipe(t);
    assert.equal(await statusOfAll(`${piped.url}/openapi.json`, SLOW_REQUESTS), 200);
    piped.program.kill('SIGTERM');
    const lines: LogLine[] = [];
    await readLine(piped, ({ msg }) => msg === 'stopped', lines, PAUSE_MS);
    assert.equal(lines.filter(({ msg }) => msg === 'answered').length, SLOW_REQUESTS);
    assert.equal((await endOf(piped.program)).code, 0);
  });
});

const EACH = 20_000;

/** Logs a flood of lines that clients cause, then two important ones. Reports the dropped lines on stderr. */
const FLOOD = `
  import { createLog } from ${JSON.stringify(new URL('../../../src/observability/log.ts', import.meta.url).href)};
  const { log, linesDropped } = await createLog('info');
  for (let n = 0; n < ${EACH}; n += 1) log.event('rejected', { requestId: 'abcdefgh', operation: 'none', status: 400 });
  for (let n = 0; n < ${EACH}; n += 1) log.event('failed', { requestId: 'abcdefgh', err: 'the store is away' });
  log.event('a token was rejected', { audit: 'tokenRefused', requestId: 'abcdefgh' });
  log.event('writes fail; fix the cause in err', { failures: 1 });
  process.stderr.write(linesDropped() + '\\n');
  process.stdin.resume();
`;

describe('the log is not read, and clients cause a flood of lines', () => {
  it('errors, audit lines and lines of the service still fit into the buffer', async (t) => {
    const child = spawn(process.execPath, ['--input-type=module', '--eval', FLOOD], { stdio: 'pipe' });
    t.after(() => child.kill('SIGKILL'));
    const [report] = await once(child.stderr, 'data');
    const dropped = Number(String(report));
    const lines: LogLine[] = [];
    for await (const text of createInterface({ input: child.stdout })) {
      const line: LogLine = JSON.parse(text);
      if (String(line.msg).startsWith('log lines were dropped')) {
        assert.equal(line.lines, dropped);
        break;
      }
      lines.push(line);
    }
    const countOf = (msg: string): number => lines.filter((line) => line.msg === msg).length;
    const [rejected, failed] = [countOf('rejected'), countOf('failed')];
    assert.ok(rejected > 0 && failed > 0, `${rejected} and ${failed} lines`);
    assert.equal(rejected + failed + dropped, 2 * EACH);
    assert.deepEqual([countOf('a token was rejected'), countOf('writes fail; fix the cause in err')], [1, 1]);
  });
});

/** Line that the test adds to the log of a program that has ended. */
const END = '{"msg":"end of the log"}\n';

interface Piped {
  readonly program: Program;
  /** The reading end; it reads only on request. */
  readonly pipe: FileHandle;
  readonly url: string;
  readonly adminUrl: string;
}

/** Starts the service with its log in a FIFO, and reads the lines up to `serving`. */
async function serveIntoPipe(t: TestContext): Promise<Piped> {
  const installation = await newInstallation(t);
  const path = join(installation.folder, 'log');
  await promisify(execFile)('mkfifo', [path]);
  const pipe = await open(path, constants.O_RDWR);
  t.after(() => pipe.close());
  const program = installation.start(['serve', '--port', '0', '--admin-port', '0'], {
    env: { NODE_ENV: 'production' },
    wrap: (command) => ['bash', '-c', 'exec "$@" > log', 'bash', ...command],
  });
  const serving = await readLine({ program, pipe }, ({ msg }) => msg === 'serving');
  return { program, pipe, url: String(serving.url), adminUrl: String(serving.adminUrl) };
}

/** Reads lines until one matches. Adds all of them to `lines`. Rejects if the program ends without the line. */
async function readLine(
  { program, pipe }: Pick<Piped, 'program' | 'pipe'>,
  fits: (line: LogLine) => boolean,
  lines: LogLine[] = [],
  pauseMs = 0,
): Promise<LogLine> {
  let text = '';
  let isReading = true;
  // The pipe has no end: the test has its writing end too.
  void program.ended.then(async () => {
    if (isReading) await pipe.write(END);
  });
  try {
    for (;;) {
      const { buffer, bytesRead } = await pipe.read(Buffer.alloc(65_536));
      text += buffer.toString('utf8', 0, bytesRead);
      const end = text.lastIndexOf('\n') + 1;
      const complete = text.slice(0, end);
      text = text.slice(end);
      const read = complete.split('\n').flatMap((line): LogLine[] => (line === '' ? [] : [JSON.parse(line)]));
      lines.push(...read);
      const found = read.find(fits);
      if (found !== undefined) return found;
      assert.ok(!complete.endsWith(END), `the log ended after ${lines.length} lines`);
      await sleep(pauseMs);
    }
  } finally {
    isReading = false;
  }
}

/** Sends many requests, some in parallel. Returns their common status. */
async function statusOfAll(url: string, requests: number): Promise<number | undefined> {
  const statuses = new Set<number>();
  let begun = 0;
  async function ask(): Promise<void> {
    while (begun < requests) {
      begun += 1;
      const response = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS), method: 'HEAD' });
      statuses.add(response.status);
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, ask));
  assert.equal(statuses.size, 1);
  return [...statuses][0];
}

async function droppedAt(adminUrl: string): Promise<number> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  return Number(/^plant_store_log_lines_dropped_total (\d+)$/m.exec(text)?.[1]);
}
