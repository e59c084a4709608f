import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { examplePlants } from '../example-plants.ts';
import { LISTED } from '../workload.ts';

const list = Buffer.from(
  JSON.stringify(
    examplePlants()
      .slice(0, LISTED)
      .map(({ name, tag }) => ({ name, tag })),
  ),
);

const server = createServer((request, response) => {
  if (request.method === 'POST') echo(request, response);
  else if (request.method === 'GET') sendJson(response, list);
  else response.writeHead(204).end();
});

function echo(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString());
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
