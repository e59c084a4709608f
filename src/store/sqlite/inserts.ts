import type { DatabaseSync } from 'node:sqlite';
import type { PlantRow } from '../../plant.ts';
import type { Token } from '../../token.ts';
import { columnsOf, PLANT_COLUMNS, plantValues, TOKEN_COLUMNS } from '../rows.ts';

/** Prepares the creation of a plant. The function returns true when the id was free. */
export function prepareInsertPlant(db: DatabaseSync): (plant: PlantRow) => boolean {
  const places = PLANT_COLUMNS.replaceAll(/\w+/g, '?');
  const statement = db.prepare(
    `INSERT INTO plants (${PLANT_COLUMNS}) VALUES (${places}) ON CONFLICT DO NOTHING`,
  );
  return (plant) => Number(statement.run(...plantValues(plant)).changes) > 0;
}

/** Prepares the creation of a token. */
export function prepareInsertToken(db: DatabaseSync): (token: Token) => void {
  const statement = db.prepare(`INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`);
  return (token) => {
    statement.run(...columnsOf(token));
  };
}
