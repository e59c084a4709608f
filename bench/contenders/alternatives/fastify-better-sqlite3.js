// The service in its simplest form: Fastify, better-sqlite3, one statement per request. No tokens; every
// commit is on disk before its response, as in our service. Argument: the database file.
import Database from 'better-sqlite3';
import Fastify from 'fastify';

const db = new Database(process.argv[2]);
db.pragma('journal_mode = WAL');
db.pragma('synchronous = FULL');
db.exec('CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)');
const insert = db.prepare('INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)');
const list = db.prepare('SELECT name, tag FROM plants ORDER BY id LIMIT ?');
const remove = db.prepare('DELETE FROM plants WHERE id = ?');

const app = Fastify();

const newPlant = {
  type: 'object',
  required: ['id', 'name'],
  properties: { id: { type: 'integer' }, name: { type: 'string' }, tag: { type: 'string' } },
};

app.post('/plants', { schema: { body: newPlant } }, (request) => {
  const { id, name, tag } = request.body;
  insert.run(id, name, tag);
  return { name, tag };
});

app.get('/plants', (request) => list.all(Number(request.query.limit ?? -1)));

app.delete('/plants/:id', (request, reply) => {
  const { changes } = remove.run(Number(request.params.id));
  return reply.code(changes === 0 ? 404 : 204).send();
});

const url = await app.listen({ host: '127.0.0.1', port: 0 });
process.stdout.write(`${JSON.stringify({ url })}\n`);
