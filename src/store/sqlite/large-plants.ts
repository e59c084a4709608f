import type { DatabaseSync } from 'node:sqlite';
import { isOptionalField, plantFields } from '../../plant.ts';

/**
 * Max characters of a plant in the table `plants`. Longer plants are stored as JSON in `large_plants`. Rows
 * of `plants` must be short: the table has no rowid, so SQLite reads whole rows to find a key.
 */
export const LARGE_CHARACTERS = 16 * 1024;

const FIELDS = plantFields.map(
  (field) => `CASE WHEN plants.large_id IS NULL THEN ${field} ELSE json ->> '$.${field}' END AS ${field}`,
);

/** Query for whole plants, including those in `large_plants`. */
export const SELECT_PLANTS = `SELECT owner, id, ${FIELDS.join(', ')} FROM plants LEFT JOIN large_plants USING (large_id)`;

/** SQL for a row of `plants` that has a field of a plant, though a large plant has only its link there. */
const HAS_FIELD = plantFields
  .map((field) => (isOptionalField(field) ? `${field} IS NOT NULL` : `${field} <> ''`))
  .join(' OR ');

/**
 * Returns inconsistencies: a large plant without its JSON, one that also has fields in `plants`, JSON without a plant.
 */
export function inspectLargePlants(db: DatabaseSync): readonly string[] {
  const plants = db.prepare(
    `SELECT owner, id FROM plants LEFT JOIN large_plants USING (large_id)
      WHERE plants.large_id IS NOT NULL AND json IS NULL`,
  );
  plants.setReadBigInts(true);
  const doubled = db.prepare(`SELECT owner, id FROM plants WHERE large_id IS NOT NULL AND (${HAS_FIELD})`);
  doubled.setReadBigInts(true);
  const rows = db.prepare(
    'SELECT large_id FROM large_plants WHERE large_id NOT IN (SELECT large_id FROM plants WHERE large_id IS NOT NULL)',
  );
  return [
    ...plants.all().map(({ owner, id }) => `the plant ${id} of ${owner}: its row in large_plants is missing`),
    ...doubled
      .all()
      .map(({ owner, id }) => `the plant ${id} of ${owner}: it has fields next to its row in large_plants`),
    ...rows
      .all()
      .map(
        ({ large_id }) =>
          `large_plants has a row that belongs to no plant: ${large_id}. If its plant was deleted: \`DELETE FROM large_plants WHERE large_id = ${large_id};\``,
      ),
  ];
}
