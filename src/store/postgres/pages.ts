import { type IdRange, type PageLimit, type PlantPage, StoreDamaged } from '../store.ts';
import type { Row, Statement } from './statements.ts';

const PLANT = `'{"name":' || to_json(name)::text || coalesce(',"tag":' || to_json(tag)::text, '') || '}'`;

/** Bytes of texts in a row, which `octet_length` knows without reading large ones. */
const RAW_BYTES = 'octet_length(name) + coalesce(octet_length(tag), 0)';

const MORE = 'EXISTS (SELECT 1 FROM plants WHERE owner = $1 AND id > last AND id <= $3) AS more';

/** Bytes of texts that a page of any number of plants may render before it is known to be too long. */
const RENDERED_BYTES = 4 * 1024 * 1024;

/**
 * Reads a page. Nearly always all rows up to the limit of plants fit, and one statement renders them. It skips rows that
 * are too large for that; where there are any, or the page is too long, another statement adds up the sizes row by row.
 */
export async function readPage(
  query: (statement: Statement) => Promise<readonly Row[]>,
  owner: string,
  { from, to }: IdRange,
  { plants, bytes }: PageLimit,
): Promise<PlantPage> {
  async function select(statement: Statement, rowBytes: number): Promise<PlantPage | undefined> {
    const values = [owner, from.toString(), to.toString(), plants, rowBytes];
    const [{ json, count, last, more } = {}] = await query({ ...statement, values });
    if (json === null) return undefined;
    if (typeof json !== 'string') throw unreadable(from);
    return {
      json,
      count: Number(count),
      last: typeof last === 'string' ? BigInt(last) : undefined,
      more: more === true,
    };
  }

  const page = await select(ALL_ROWS, Math.floor(Math.min(bytes, RENDERED_BYTES / plants)));
  if (page !== undefined && (page.count < 2 || Buffer.byteLength(page.json) <= bytes)) return page;
  const fitting = await select(FITTING_ROWS, bytes);
  if (fitting === undefined) throw unreadable(from);
  return fitting;
}

function unreadable(from: bigint): StoreDamaged {
  return new StoreDamaged(`the plants from the id ${from} on cannot be read as JSON`);
}

const ALL_ROWS: Statement = {
  name: 'list-plants',
  text: `SELECT CASE WHEN largest <= $5 THEN '[' || coalesce(json, '') || ']' END AS json, count, last, ${MORE}
           FROM (SELECT string_agg(CASE WHEN ${RAW_BYTES} <= $5 THEN ${PLANT} END, ',' ORDER BY id) AS json,
                        count(*) AS count, max(id) AS last, coalesce(max(${RAW_BYTES}), 0) AS largest
                   FROM (SELECT id, name, tag FROM plants
                          WHERE owner = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4) AS page) AS rendered`,
};

const FITTING_ROWS: Statement = {
  name: 'list-large-plants',
  // `OFFSET 0` keeps the planner from rendering a row once for each place that mentions its JSON.
  text: `SELECT '[' || coalesce(json, '') || ']' AS json, count, last, ${MORE}
           FROM (SELECT string_agg(plant, ',' ORDER BY id) AS json, count(*) AS count, max(id) AS last
                   FROM (SELECT id, plant, place,
                                1 + sum(octet_length(plant) + 1) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS size
                           FROM (SELECT id, place, ${PLANT} AS plant
                                   FROM (SELECT id, name, tag,
                                                row_number() OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS place,
                                                sum(${RAW_BYTES}) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS raw
                                           FROM (SELECT id, name, tag FROM plants
                                                  WHERE owner = $1 AND id BETWEEN $2 AND $3
                                                  ORDER BY id LIMIT $4) AS first) AS counted
                                  WHERE raw <= $5 OR place = 1
                                 OFFSET 0) AS rendered) AS sized
                  WHERE size <= $5 OR place = 1) AS page`,
};
