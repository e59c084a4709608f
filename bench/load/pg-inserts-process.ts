/**
 * Measures inserts through `pg`: a prepared statement, one insert per transaction. Arguments: URL CONNECTIONS
 * SECONDS.
 */
import pg from 'pg';
import { NEW_PLANT } from '../workload.ts';
import type { LoadResult } from './generator.ts';
import { percentile } from './percentile.ts';

const IDS_A_CONNECTION = 1_000_000_000;

const [url, connections, seconds] = process.argv.slice(2);
process.stdout.write(`${JSON.stringify(await insert(Number(connections), Number(seconds)))}\n`);

async function insert(connections: number, seconds: number): Promise<LoadResult> {
  const clients = Array.from({ length: connections }, () => new pg.Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
  const latencies: number[] = [];
  const begin = performance.now();
  const end = begin + seconds * 1_000;
  await Promise.all(
    clients.map(async (client, index) => {
      for (let id = index * IDS_A_CONNECTION; performance.now() < end; id += 1) {
        const sent = performance.now();
        await client.query({
          name: 'create',
          text: 'INSERT INTO plants (owner, id, name, tag) VALUES ($1, $2, $3, $4)',
          values: ['bench', id, NEW_PLANT.name, NEW_PLANT.tag],
        });
        latencies.push(performance.now() - sent);
      }
    }),
  );
  const took = (performance.now() - begin) / 1_000;
  await Promise.all(clients.map((client) => client.end()));
  latencies.sort((a, b) => a - b);
  return {
    answers: latencies.length,
    seconds: took,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    failures: 0,
  };
}
