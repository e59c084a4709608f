// Platformatic DB, set up as in its documentation: a table, and REST routes generated from it. No tokens.
// Argument: a separate folder for its files.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create } from '@platformatic/db';

const folder = process.argv[2];
await mkdir(join(folder, 'migrations'));
await writeFile(
  join(folder, 'migrations', '001.do.sql'),
  'CREATE TABLE plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT);',
);
const app = await create(
  folder,
  {
    db: { connectionString: `sqlite://${join(folder, 'plants.db')}` },
    migrations: { dir: 'migrations', autoApply: true },
  },
  { serverConfig: { hostname: '127.0.0.1', port: 0, logger: { level: 'error' } } },
);
await app.init();
await app.start({ listen: true });
process.stdout.write(`${JSON.stringify({ url: app.getUrl() })}\n`);
