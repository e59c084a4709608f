import { isOptionalField, plantFields } from '../../plant.ts';
import { FIELD_COLUMNS } from '../rows.ts';
import { type IdRange, type LargePlant, type PageLimit, type PlantPage, StoreDamaged } from '../store.ts';
import type { Row, Statement } from './statements.ts';

/**
 * Encodes each result into a separate ArrayBuffer. `Buffer.from` may use a shared one. The caller may
 * therefore detach the ArrayBuffer of a result to free its memory.
 */
const encoder = new TextEncoder();

/**
 * SQL that renders a plant as JSON. The first field is never absent, so each later field begins with a comma.
 */
const PLANT = `${plantFields
  .map((field, place) => {
    const member = `'${place === 0 ? '{' : ','}"${field}":' || to_json(${field})::text`;
    return isOptionalField(field) ? `coalesce(${member}, '')` : member;
  })
  .join(' || ')} || '}'`;

/**
 * SQL for the total bytes of all fields of a plant. `octet_length` returns the length of a text without
 * reading the text.
 */
const RAW_BYTES = plantFields.map((field) => `coalesce(octet_length(${field}::text), 0)`).join(' + ');

function moreAfter(id: string): string {
  return `EXISTS (SELECT 1 FROM plants AS next WHERE next.owner = $1 AND next.id > ${id} AND next.id <= $3) AS more`;
}

/** Max bytes of text that the first statement of a page renders, before the size of the page is known. */
const RENDERED_BYTES = 4 * 1024 * 1024;

/**
 * Reads a page. The first statement reads up to the max number of plants, which usually fit into the byte
 * limit. If they do not fit, a second statement adds up their sizes and ends the page at the limit.
 */
export async function readPage(
  query: (statement: Statement) => Promise<readonly Row[]>,
  owner: string,
  { from, to }: IdRange,
  { plants, bytes }: PageLimit,
): Promise<PlantPage> {
  async function select(statement: Statement, rowBytes: number): Promise<PlantPage | undefined> {
    const values = [owner, from.toString(), to.toString(), plants, rowBytes];
    const [row] = await query({ ...statement, values });
    if (typeof row?.json !== 'string') return undefined;
    const { json, count, last, more, large } = row;
    if (typeof large === 'number') return { json, count: 0, last: undefined, more: true, largeBytes: large };
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

/** Reads the first plant in a range of ids, however large the plant is; undefined if there is none. */
export async function readLargePlant(
  query: (statement: Statement) => Promise<readonly Row[]>,
  owner: string,
  { from, to }: IdRange,
): Promise<LargePlant | undefined> {
  const [row] = await query({ ...LARGE_PLANT, values: [owner, from.toString(), to.toString()] });
  if (row === undefined) return undefined;
  const { json, id, more } = row;
  if (typeof json !== 'string' || typeof id !== 'string') throw unreadable(from);
  return { json: encoder.encode(json), id: BigInt(id), more: more === true };
}

function unreadable(from: bigint): StoreDamaged {
  return new StoreDamaged(`a page of plants cannot be read as JSON; it begins at id ${from}`);
}

const FIRST_PLANT = 'FROM plants WHERE owner = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT 1';

const ALL_ROWS: Statement = {
  name: 'list-plants',
  text: `SELECT CASE WHEN largest <= $5 THEN '[' || coalesce(json, '') || ']' END AS json, count, last, ${moreAfter('last')}
           FROM (SELECT string_agg(CASE WHEN ${RAW_BYTES} <= $5 THEN ${PLANT} END, ',' ORDER BY id) AS json,
                        count(*) AS count, max(id) AS last, coalesce(max(${RAW_BYTES}), 0) AS largest
                   FROM (SELECT id, ${FIELD_COLUMNS} FROM plants
                          WHERE owner = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4) AS page) AS rendered`,
};

const FITTING_ROWS: Statement = {
  name: 'list-large-plants',
  // `OFFSET 0` prevents the planner from flattening the subquery. Otherwise the server may render a row again
  // for each use of `plant`.
  text: `SELECT '[' || coalesce(json, '') || ']' AS json, count, last, ${moreAfter('last')},
                CASE WHEN count = 0 THEN (SELECT octet_length(${PLANT})
                                            FROM (SELECT ${FIELD_COLUMNS} ${FIRST_PLANT}) AS first) END AS large
           FROM (SELECT string_agg(plant, ',' ORDER BY id) AS json, count(*) AS count, max(id) AS last
                   FROM (SELECT id, plant, place,
                                1 + sum(octet_length(plant) + 1) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS size
                           FROM (SELECT id, place, ${PLANT} AS plant
                                   FROM (SELECT id, ${FIELD_COLUMNS},
                                                row_number() OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS place,
                                                sum(${RAW_BYTES}) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS raw
                                           FROM (SELECT id, ${FIELD_COLUMNS} FROM plants
                                                  WHERE owner = $1 AND id BETWEEN $2 AND $3
                                                  ORDER BY id LIMIT $4) AS first) AS counted
                                  WHERE raw <= $5
                                 OFFSET 0) AS rendered) AS sized
                  WHERE size <= $5 OR place = 1) AS page`,
};

const LARGE_PLANT: Statement = {
  name: 'read-large-plant',
  // The subquery selects one row first. Otherwise the planner may render all rows as JSON and then sort them.
  text: `SELECT ${PLANT} AS json, id, ${moreAfter('first.id')}
           FROM (SELECT id, ${FIELD_COLUMNS} ${FIRST_PLANT}) AS first`,
};
