import type { DatabaseSync } from 'node:sqlite';
import type { Token } from '../../token.ts';
import type { PlantRow } from '../bulk-store.ts';
import { columnsOf, TOKEN_COLUMNS } from '../rows.ts';

/** Prepares the creation of a plant; it returns whether the id was free. */
export function prepareInsertPlant(db: DatabaseSync): (plant: PlantRow) => boolean {
  const statement = db.prepare(
    'INSERT INTO plants (owner, id, name, tag) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
  );
  return ({ owner, id, name, tag }) => Number(statement.run(owner, id, name, tag).changes) > 0;
}

/** Prepares the creation of a token. */
export function prepareInsertToken(db: DatabaseSync): (token: Token) => void {
  const statement = db.prepare(`INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`);
  return (token) => {
    statement.run(...columnsOf(token));
  };
}
