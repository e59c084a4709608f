/**
 * Reads one long response as fast as it arrives. Arguments: URL HEADERS PLANTS BYTES. The last two are the
 * expected number of plants and of bytes.
 */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import type { LoadResult } from './generator.ts';

const [url = '', headers = '{}', answers, bytes] = process.argv.slice(2);
process.stdout.write(`${JSON.stringify(await read(Number(answers), Number(bytes)))}\n`);

async function read(answers: number, bytes: number): Promise<LoadResult> {
  const begin = performance.now();
  const request = get(url, { agent: false, headers: JSON.parse(headers) });
  const [response]: IncomingMessage[] = await once(request, 'response');
  let received = 0;
  response?.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  if (response !== undefined) await once(response, 'end');
  const took = performance.now() - begin;
  if (response?.statusCode !== 200 || received !== bytes)
    throw new Error(`status ${response?.statusCode}, ${received} of ${bytes} bytes`);
  return { answers, seconds: took / 1_000, p50Ms: took, p99Ms: took, failures: 0 };
}
