import Fastify from 'fastify';
import { LISTED } from '../workload.ts';
import { examplePlants } from './example-plants.ts';

const list = JSON.stringify(
  examplePlants()
    .slice(0, LISTED)
    .map(({ name, tag }) => ({ name, tag })),
);

// Does the same as the bare node:http server of the benchmark, but in Fastify, without schemas.
const app = Fastify();
app.post('/plants', (request) => JSON.stringify(request.body));
app.get('/plants', (_request, reply) => reply.type('application/json').send(list));
app.delete('/plants/:id', (_request, reply) => reply.code(204).send());

const url = await app.listen({ host: '127.0.0.1', port: 0 });
process.stdout.write(`${JSON.stringify({ url })}\n`);
process.once('SIGTERM', () => app.close());
