import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { LISTED } from '../workload.ts';
import { examplePlants } from './example-plants.ts';

const examples = examplePlants();
const list = listOf(LISTED);
/**
 * Response body of lists without `?limit=20`. Its number of plants is the program's first argument, 20 by
 * default.
 */
const longList = process.argv[2] === undefined ? list : listOf(Number(process.argv[2]));

function listOf(length: number): Buffer {
  const plants = Array.from({ length }, (_, index) => examples[index % examples.length]);
  return Buffer.from(JSON.stringify(plants.map((plant) => ({ name: plant?.name, tag: plant?.tag }))));
}

const server = createServer((request, response) => {
  if (request.method === 'POST') echo(request, response);
  else if (request.method === 'GET') sendJson(response, isLong(request) ? longList : list);
  else response.writeHead(204).end();
});

function isLong({ url = '' }: IncomingMessage): boolean {
  return /^\/(?:plants|docs)/.test(url) && !url.endsWith('?limit=20');
}

function echo(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    let value: unknown;
    try {
      value = JSON.parse(Buffer.concat(chunks).toString());
    } catch {
      response.writeHead(400).end();
      return;
    }
    sendJson(response, Buffer.from(JSON.stringify(value)));
  });
}

function sendJson(response: ServerResponse, body: Buffer): void {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
}

server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  process.stdout.write(`${JSON.stringify({ url: `http://127.0.0.1:${address.port}` })}\n`);
});

process.once('SIGTERM', () => {
  server.close();
  server.closeAllConnections();
});
