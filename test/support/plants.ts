import { type NewPlant, type PlantRow, toPlantRow } from '../../src/plant.ts';

/**
 * A plant with every field. Tests pass this plant to all code that handles plants, to check that no field is
 * lost.
 */
export const FULL_PLANT: Required<NewPlant> = { id: 7n, name: 'Black alder', tag: 'Alnus glutinosa' };

/** A plant that differs from `FULL_PLANT` in every field but the id. */
export const OTHER_FULL_PLANT: Required<NewPlant> = { id: 7n, name: 'Elm', tag: 'tree' };

export type PlantFields = Partial<Omit<PlantRow, 'id'>>;

/**
 * Returns a row of the table `plants`. Missing fields get the values of a simple plant of the owner alice.
 */
export function plantRow(id: bigint, fields: PlantFields = {}): PlantRow {
  return { ...toPlantRow('alice', { id, name: `plant ${id}` }), ...fields };
}
