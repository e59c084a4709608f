import type { DatabaseSync } from 'node:sqlite';
import { isOptionalField, type Plant, plantFields } from '../../plant.ts';
import { type IdRange, type LargePlant, type PageLimit, type PlantPage, unreadablePage } from '../store.ts';
import { isTooBig } from './errors.ts';

/**
 * Returns SQL that renders a plant as JSON, with a CASE branch for each combination of present fields. The function
 * `json_patch` could remove null fields instead, but takes four times as long. `large` is the SQL for a large plant. Its
 * row has no optional fields, so only the branch without them reads `large_id`, the last column: in all branches, a page
 * would take a sixth longer.
 */
function plantSql(
  large: string,
  present: readonly (keyof Plant)[] = [],
  [field, ...rest]: readonly (keyof Plant)[] = plantFields,
): string {
  if (field === undefined) {
    const json = `json_object(${present.map((name) => `'${name}', ${name}`).join(', ')})`;
    if (present.some(isOptionalField)) return json;
    return `CASE WHEN plants.large_id IS NULL THEN ${json} ELSE ${large} END`;
  }
  const withField = plantSql(large, [...present, field], rest);
  if (!isOptionalField(field)) return withField;
  return `CASE WHEN ${field} IS NULL THEN ${plantSql(large, present, rest)} ELSE ${withField} END`;
}

/** SQL that renders a plant of any size as JSON. */
const ANY_PLANT = plantSql('json');

/** SQL that renders a plant as JSON, and fails for a large one: its value exceeds each limit on the size of a value. */
const SHORT_PLANT = plantSql('zeroblob(2147483647)');

/**
 * SQL for the number of bytes in a plant's texts. `octet_length` reads only the header of a row, not the
 * texts.
 */
const PLANT_BYTES = `CASE WHEN plants.large_id IS NULL
  THEN ${plantFields.map((field) => `coalesce(octet_length(${field}), 0)`).join(' + ')}
  ELSE octet_length(json) END`;

/**
 * JSON_GROWTH: max bytes of JSON for one byte of text (six for `\u0001`). MEMBER_NAMES: max bytes that the
 * names and numeric values of all fields add to a plant's JSON.
 */
const JSON_GROWTH = 6;
const MEMBER_NAMES = 32 * plantFields.length;

/**
 * Lowest limit on the size of a value, in bytes, that these statements set in SQLite. The limit applies to
 * the whole connection. Other statements of the connection read values of up to this size.
 */
const SMALLEST_VALUE_LIMIT = 64 * 1024;

/**
 * Prepares the statements that read pages. SQLite's limit on the size of a value (`sqlite3_limit`) bounds the
 * memory of those for pages. Usually one statement reads the whole page. If the page exceeds the limit or
 * has large plants, it is read again row by row.
 */
export function preparePages(db: DatabaseSync) {
  // Finds the last id first: SQLite would copy the columns of a subquery row by row. The primary key gives the order, an added
  // index could reverse it; another row count means damage. `json_group_array` would bound memory only at the end.
  const whole = db.prepare(
    `SELECT (SELECT CASE WHEN last IS NULL OR count(*) = ?4
                    THEN '[' || coalesce(group_concat(${SHORT_PLANT}), '') || ']' END
               FROM plants INDEXED BY sqlite_autoindex_plants_1
              WHERE owner = ?1 AND id BETWEEN ?2 AND coalesce(last, ?3)) AS json, last, more
       FROM (SELECT min(id) AS last, count(*) > 1 AS more
               FROM (SELECT id FROM plants WHERE owner = ?1 AND id BETWEEN ?2 AND ?3
                      ORDER BY id LIMIT 2 OFFSET ?4 - 1))`,
  );
  whole.setReadBigInts(true);
  const single = db.prepare(
    `SELECT id, ${PLANT_BYTES} AS bytes, CASE WHEN ${PLANT_BYTES} <= ?4 THEN ${ANY_PLANT} END AS json
       FROM plants LEFT JOIN large_plants USING (large_id)
      WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id`,
  );
  single.setReadBigInts(true);
  const first = db.prepare(
    `SELECT CAST(${ANY_PLANT} AS BLOB) AS json, id,
            EXISTS (SELECT 1 FROM plants AS next
                     WHERE next.owner = ?1 AND next.id > plants.id AND next.id <= ?3) AS more
       FROM plants LEFT JOIN large_plants USING (large_id)
      WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id LIMIT 1`,
  );
  first.setReadBigInts(true);
  let valueLimit = Number.POSITIVE_INFINITY;

  function limitValues(bytes: number): void {
    if (bytes === valueLimit) return;
    db.limits.length = bytes;
    valueLimit = bytes;
  }

  /** Reads a page in one statement; undefined if the page exceeds the limit of bytes or has large plants. */
  function tryWhole(owner: string, range: IdRange, { plants, bytes }: PageLimit): PlantPage | undefined {
    limitValues(Math.max(bytes, SMALLEST_VALUE_LIMIT));
    try {
      const row = whole.get(owner, range.from, range.to, plants);
      if (typeof row?.json !== 'string') return undefined;
      const { json, last, more } = row;
      const page = { json, bytes: Buffer.byteLength(json) };
      if (page.bytes > bytes) return undefined;
      return typeof last === 'bigint' && more === 1n ? { ...page, cut: { last, count: plants } } : page;
    } catch (error: unknown) {
      if (isTooBig(error)) return undefined;
      throw error;
    }
  }

  /** Reads a page row by row, up to its limits. */
  function readFitting(owner: string, { from, to }: IdRange, { plants, bytes }: PageLimit): PlantPage {
    limitValues(Math.max(JSON_GROWTH * bytes + MEMBER_NAMES, SMALLEST_VALUE_LIMIT));
    const members: string[] = [];
    let last: bigint | undefined;
    let size = '['.length;
    for (const { id, bytes: plantBytes, json } of single.iterate(owner, from, to, bytes)) {
      if (typeof id !== 'bigint' || typeof plantBytes !== 'bigint') throw unreadablePage(from);
      size += (typeof json === 'string' ? Buffer.byteLength(json) : Number(plantBytes)) + ','.length;
      if (members.length > 0 && (members.length === plants || size > bytes)) return pageOf(members, last);
      if (typeof json !== 'string') return { ...pageOf(members), largeBytes: Number(plantBytes) };
      members.push(json);
      last = id;
    }
    return pageOf(members);
  }

  function readLargePlant(owner: string, { from, to }: IdRange): LargePlant | undefined {
    limitValues(Number.POSITIVE_INFINITY);
    const row = first.get(owner, from, to);
    if (row === undefined) return undefined;
    const { json, id, more } = row;
    if (!(json instanceof Uint8Array) || typeof id !== 'bigint') throw unreadablePage(from);
    return { json, id, more: more === 1n };
  }

  return {
    listPlants: (owner: string, range: IdRange, limit: PageLimit): PlantPage =>
      tryWhole(owner, range, limit) ?? readFitting(owner, range, limit),
    readLargePlant,
  };
}

/** Returns a page. `last` is the id of its last plant, if the range has plants after it. */
function pageOf(members: readonly string[], last?: bigint): PlantPage {
  const json = `[${members.join(',')}]`;
  const page = { json, bytes: Buffer.byteLength(json) };
  return last === undefined ? page : { ...page, cut: { last, count: members.length } };
}
