import assert from 'node:assert/strict';
import { createHash, type Hash, hash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { type TestContext, test } from 'node:test';
import { INT64_MAX, INT64_MIN, type PlantRow } from '../../../src/plant.ts';
import { migrateStore, openBulk, openStore } from '../../../src/store/open-engine.ts';
import { connections, engines, type TestEngine } from '../../support/engines.ts';
import { plantRow } from '../../support/plants.ts';
import {
  inMebibytes,
  MEBIBYTE,
  peakMemory,
  resetPeakMemory,
  residentMemory,
} from '../../support/process-resources.ts';
import { isOfTestSetup, newInstallation, type Service } from '../../support/program.ts';
import { bearer } from '../../support/service.ts';

/** Set for the long form, which runs before a release (CONTRIBUTING.md). */
const IS_LONG_FORM = process.env.LARGE_PLANTS === 'all';
const PLANTS_OF_16_MIB = IS_LONG_FORM ? 64 : 3;
const PLANTS_OF_30_MB = IS_LONG_FORM ? 20 : 1;
/** The guarantee is 256 MiB. The short form adds room for garbage that a busy machine collects late. */
const GROWTH_LIMIT = (IS_LONG_FORM ? 256 : 384) * MEBIBYTE;

/** Makes malloc return freed memory to the system, so that only live memory is measured. */
const FRUGAL = { MALLOC_TRIM_THRESHOLD_: '65536', MALLOC_MMAP_THRESHOLD_: '65536' };

/** Yields large plants with different names, and small ones in between. Keeps none in memory. */
function* largePlants(): Generator<PlantRow> {
  const sizes = [
    ...Array.from({ length: PLANTS_OF_16_MIB }, () => 16 * MEBIBYTE),
    ...Array.from({ length: PLANTS_OF_30_MB }, () => 30_000_000),
  ];
  for (const [index, size] of sizes.entries()) {
    const id = BigInt(index * 10);
    yield plantRow(id, { name: textOf(index, size), tag: index % 2 === 0 ? null : 'large' });
    yield plantRow(id + 1n, { name: `small ${index}` });
  }
}

function textOf(index: number, size: number): string {
  // Few characters to escape: in PostgreSQL's JSON and arrays, each takes several times as long as a plain one.
  const line = index % 3 === 0 ? `${index} "é"\n${'plain '.repeat(10)}` : `${index} plain `;
  return line.repeat(Math.floor(size / Buffer.byteLength(line)));
}

async function fill(url: string): Promise<{ list: string; plants: number }> {
  await migrateStore(url);
  const bulk = await openBulk(url, connections);
  const list = createHash('sha256');
  let plants = 0;
  for (const plant of largePlants()) {
    await bulk.savePlants([plant], 'fail');
    const { name, tag } = plant;
    list.update(`${plants === 0 ? '[' : ','}${JSON.stringify(tag === null ? { name } : { name, tag })}`);
    plants += 1;
  }
  await bulk.close();
  return { list: list.update(']').digest('hex'), plants };
}

for (const engine of engines) {
  test(`plants of 16 MiB and 30 MB → list, pages and export are exact, memory is bounded, on ${engine.name}`, async (t) => {
    const { service, token, url, expected } = await start(t, engine);
    t.after(() => {
      for (const line of service.log) if (Number(line.level) > 30) t.diagnostic(JSON.stringify(line));
    });
    const before = await residentMemory(service);
    await resetPeakMemory(service);

    const whole = createHash('sha256');
    await addBody(await request(service, token, '/plants'), (chunk) => whole.update(chunk));
    assert.equal(whole.digest('hex'), expected.list);

    for (const limit of [3, 1_000]) {
      const list = createHash('sha256');
      assert.equal(await addPages(service, token, limit, list), expected.plants);
      assert.equal(list.digest('hex'), expected.list, `in pages of ${limit}`);
    }

    const growth = (await peakMemory(service)) - before;
    t.diagnostic(`memory of the service: ${inMebibytes(before)}, +${inMebibytes(growth)}`);
    assert.ok(growth < GROWTH_LIMIT, `the memory grew by ${inMebibytes(growth)}`);
    assert.equal((await service.stop()).code, 0);
    assert.deepEqual(
      service.log.filter((line) => Number(line.level) > 30 && !isOfTestSetup(line)),
      [],
    );

    const installation = await newInstallation(t);
    const exported = await installation.run(['export', 'alice', 'plants.ndjson'], {
      env: { DATABASE_URL: url },
    });
    assert.equal(exported.code, 0, exported.stderr);
    await assertSameExport(`${installation.folder}/plants.ndjson`);
  });

  test(`plant of 32 MiB of control characters → 192 MiB of JSON, on ${engine.name}`, async (t) => {
    const url = await engine.freshUrl(t);
    await migrateStore(url);
    const bulk = await openBulk(url, connections);
    const name = '\u0001'.repeat(32 * MEBIBYTE);
    await bulk.savePlants([plantRow(1n, { name })], 'fail');
    await bulk.close();
    const store = await openStore(url, { now: Date.now, onFatal: assert.fail, connections });
    t.after(() => store.close());
    const range = { from: INT64_MIN, to: INT64_MAX };
    const { json: page, largeBytes } = await store.listPlants('alice', range, { plants: 64, bytes: 65_536 });
    assert.equal(page, '[]');
    assert.ok(Number(largeBytes) >= 32 * MEBIBYTE);
    const { json = new Uint8Array() } = (await store.readLargePlant('alice', range)) ?? {};
    assert.equal(hash('sha256', json), hash('sha256', JSON.stringify({ name })));
  });
}

async function start(t: TestContext, engine: TestEngine) {
  const url = await engine.freshUrl(t);
  const expected = await fill(url);
  const installation = await newInstallation(t);
  const env = { DATABASE_URL: url, DATABASE_STATEMENT_TIMEOUT: '60000', ...FRUGAL };
  const token = (await installation.run(['token', 'create', 'alice'], { env })).stdout.trim();
  const service = await installation.serve({ env });
  return { service, token, url, expected };
}

async function request({ url }: Service, token: string, path: string): Promise<IncomingMessage> {
  const sent = get(`${url}${path}`, { headers: bearer(token), agent: false });
  const [response]: IncomingMessage[] = await once(sent, 'response');
  assert.equal(response?.statusCode, 200);
  return response;
}

async function addBody(response: IncomingMessage, add: (chunk: Buffer) => void): Promise<void> {
  for await (const chunk of response) {
    assert.ok(Buffer.isBuffer(chunk));
    add(chunk);
  }
}

/** Adds the pages of a list to a hash, as one array. Resolves to the number of plants. */
async function addPages(service: Service, token: string, limit: number, list: Hash): Promise<number> {
  let plants = 0;
  list.update('[');
  for (let path: string | undefined = `/plants?limit=${limit}`; path !== undefined; ) {
    const response = await request(service, token, path);
    const chunks: Buffer[] = [];
    await addBody(response, (chunk) => chunks.push(chunk));
    const page = Buffer.concat(chunks);
    assert.equal(page.length, Number(response.headers['content-length']));
    const count = JSON.parse(page.toString()).length;
    path = /^<([^>]+)>; rel="next"$/.exec(String(response.headers.link))?.[1];
    if (path !== undefined) assert.ok(count === limit || page.length >= 8 * MEBIBYTE, `${count} plants`);
    list.update(plants === 0 ? '' : ',').update(page.subarray(1, -1));
    plants += count;
  }
  list.update(']');
  return plants;
}

async function assertSameExport(file: string): Promise<void> {
  const exported = createHash('sha256');
  for await (const chunk of createReadStream(file)) exported.update(chunk);
  const expected = createHash('sha256');
  for (const { id, name, tag } of largePlants())
    expected.update(`{"id":${id},${JSON.stringify(tag === null ? { name } : { name, tag }).slice(1)}\n`);
  assert.equal(exported.digest('hex'), expected.digest('hex'));
}
