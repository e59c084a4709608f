import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { stringify } from 'yaml';
import { listOf, mapOf, readYaml, textOf, type YamlMap } from '../deploy-files.ts';
import { freshFolder } from '../engines.ts';
import { PATIENCE_MS, until } from '../patience.ts';
import { freePort } from './free-port.ts';

/**
 * Milliseconds between scrapes. Production scrapes every 15 seconds; in the tests, a minute lasts a second.
 */
const INTERVAL_MS = 250;
const INTERVAL = `${INTERVAL_MS}ms`;
/**
 * Shortest `for` of a rule, and shortest time of failing commits. On a busy machine, scrapes can time out for more than
 * a second.
 */
const SHORTEST_FOR_SECONDS = 3;
/** Longer than a batch waits for the lock of another process. */
const LONGEST_BATCH_SECONDS = 10;

/**
 * A real Prometheus that scrapes a service. It has the rules of deploy/alerts.yaml, with minutes shortened to
 * seconds.
 */
export interface Prometheus {
  /** The alerts that have fired since the start. */
  fired(): Promise<readonly string[]>;
  /** Resolves when all these alerts have fired. */
  fires(alerts: readonly string[]): Promise<void>;
  /** Resolves when Prometheus has scraped for this many more seconds. */
  scrapes(seconds: number): Promise<void>;
}

/** Starts a Prometheus that scrapes the admin listener of a service. Prometheus is killed after the test. */
export async function startPrometheus(t: Pick<TestContext, 'after'>, adminUrl: string): Promise<Prometheus> {
  const folder = await freshFolder();
  const config = {
    global: { scrape_interval: INTERVAL, scrape_timeout: INTERVAL, evaluation_interval: INTERVAL },
    rule_files: ['alerts.json'],
    scrape_configs: [
      {
        job_name: 'plant-store',
        scrape_timeout: INTERVAL,
        static_configs: [{ targets: [new URL(adminUrl).host] }],
      },
    ],
  };
  await writeFile(join(folder, 'prometheus.yaml'), stringify(config));
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(folder, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=${address}`,
      '--web.enable-lifecycle',
      '--log.level=error',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  t.after(async () => {
    const exited = once(child, 'exit');
    if (child.exitCode === null && child.kill('SIGKILL')) await exited;
  });

  /** Queries Prometheus after a pause of one scrape interval, since results do not change faster. */
  const ask = async (query: string): Promise<readonly Sample[]> => {
    await setTimeout(INTERVAL_MS);
    return samplesOf(`http://${address}`, query);
  };
  const isScraping = async (): Promise<boolean> => {
    assert.equal(child.exitCode, null, log);
    return (await ask('up').catch(() => [])).length > 0;
  };
  await until(isScraping, () => log);
  // Only now: the first scrape takes seconds, and an instance that is not scraped is an alert.
  await writeFile(join(folder, 'alerts.json'), JSON.stringify({ groups: [fasterRules()] }));
  await until(async () => (await fetch(`http://${address}/-/reload`, { method: 'POST' })).ok);

  async function fired(): Promise<readonly string[]> {
    const firing = await ask('group by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))');
    return firing.map(({ metric }) => metric.alertname ?? '').sort();
  }

  async function fires(alerts: readonly string[]): Promise<void> {
    let last: readonly string[] = [];
    await until(
      async () => {
        last = await fired();
        return alerts.every((name) => last.includes(name));
      },
      () => `only ${last.join(', ')} fired, not all of ${alerts.join(', ')}`,
      FIRING_MS,
    );
  }

  async function scrapes(seconds: number): Promise<void> {
    const lastScrape = async (): Promise<number> => {
      const [sample] = await ask('timestamp(up)');
      return Number(sample?.value[1]);
    };
    const end = (await lastScrape()) + seconds;
    await until(async () => (await lastScrape()) >= end);
  }

  return { fired, fires, scrapes };
}

/** An alert fires only after several scrapes in a row, which a busy machine may delay or spread. */
const FIRING_MS = 3 * PATIENCE_MS;

interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [time: number, value: string];
}

async function samplesOf(url: string, query: string): Promise<readonly Sample[]> {
  const response = await fetch(`${url}/api/v1/query?query=${encodeURIComponent(query)}`);
  const { data }: { data: { result: readonly Sample[] } } = JSON.parse(await response.text());
  return data.result;
}

/**
 * Returns the rules of deploy/alerts.yaml with faster durations: an hour becomes a minute, a minute a second.
 */
function fasterRules(): YamlMap {
  const [file = {}] = readYaml('deploy/alerts.yaml');
  const group = mapOf(listOf(file.groups)[0]);
  const rules = listOf(group.rules)
    .map(mapOf)
    .map((rule) => ({
      ...rule,
      expr: textOf(rule.expr)
        .replace(/\[(\w+)\]/g, (_, duration: string) => `[${faster(duration)}]`)
        .replace('failing_seconds > 60', `failing_seconds > ${SHORTEST_FOR_SECONDS}`)
        .replace('batch_seconds > 60', `batch_seconds > ${LONGEST_BATCH_SECONDS}`),
      ...(rule.for !== undefined && { for: atLeast(SHORTEST_FOR_SECONDS, faster(textOf(rule.for))) }),
    }));
  return { ...group, rules };
}

function faster(duration: string): string {
  const [, count, unit] = /^(\d+)([mh])$/.exec(duration) ?? [];
  assert.ok(count !== undefined && unit !== undefined, `${duration} is neither minutes nor hours`);
  return `${count}${unit === 'h' ? 'm' : 's'}`;
}

function atLeast(seconds: number, duration: string): string {
  const [, count] = /^(\d+)s$/.exec(duration) ?? [];
  return Number(count) < seconds ? `${seconds}s` : duration;
}
