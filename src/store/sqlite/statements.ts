import type { DatabaseSync } from 'node:sqlite';
import { type PlantRow, renderPlant } from '../../plant.ts';
import type { Token } from '../../token.ts';
import { charactersIn, PLANT_COLUMNS, plantValues, TOKEN_COLUMNS, tokenValues } from '../rows.ts';
import { LARGE_CHARACTERS } from './large-plants.ts';

/**
 * Prepares the statements that create a plant. Call the returned function in a transaction. It returns true
 * if the id was free.
 */
export function prepareInsertPlant(db: DatabaseSync): (plant: PlantRow) => boolean {
  const places = PLANT_COLUMNS.replaceAll(/\w+/g, '?');
  const statement = db.prepare(
    `INSERT INTO plants (${PLANT_COLUMNS}) VALUES (${places}) ON CONFLICT (owner, id) DO NOTHING`,
  );
  const insertLarge = db.prepare(
    `INSERT INTO plants (owner, id, name, large_id)
       VALUES (?, ?, '', (SELECT coalesce(max(large_id), 0) + 1 FROM large_plants))
       ON CONFLICT (owner, id) DO NOTHING RETURNING large_id`,
  );
  const insertJson = db.prepare('INSERT INTO large_plants (large_id, json) VALUES (?, ?)');
  return (plant) => {
    if (charactersIn(plant) <= LARGE_CHARACTERS)
      return Number(statement.run(...plantValues(plant)).changes) > 0;
    const row = insertLarge.get(plant.owner, plant.id);
    if (row !== undefined) insertJson.run(Number(row.large_id), renderPlant(plant));
    return row !== undefined;
  };
}

/** Prepares the statement that deletes a plant. The returned function returns true if the plant existed. */
export function prepareDeletePlant(db: DatabaseSync): (owner: string, id: bigint) => boolean {
  const statement = db.prepare('DELETE FROM plants WHERE owner = ? AND id = ?');
  return (owner, id) => Number(statement.run(owner, id).changes) > 0;
}

export function prepareInsertToken(db: DatabaseSync): (token: Token) => void {
  const statement = db.prepare(`INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`);
  return (token) => {
    statement.run(...tokenValues(token));
  };
}
