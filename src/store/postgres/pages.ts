import { isOptionalField, plantFields } from '../../plant.ts';
import { FIELD_COLUMNS, type Row } from '../rows.ts';
import { type IdRange, type LargePlant, type PageLimit, type PlantPage, unreadablePage } from '../store.ts';
import { shareReads } from './shared-reads.ts';
import { integerArray, type Statement } from './statements.ts';

/**
 * Encodes each result into a separate ArrayBuffer. `Buffer.from` may use a shared one. The caller may
 * therefore detach the ArrayBuffer of a result to free its memory.
 */
const encoder = new TextEncoder();

/**
 * SQL that renders a plant as JSON. The first field is never absent, so each later field begins with a comma. Names the
 * schema of `to_json`: a function of another user for `text` would fit better
 * (https://www.postgresql.org/docs/current/typeconv-func.html).
 */
const PLANT = `${plantFields
  .map((field, place) => {
    const member = `'${place === 0 ? '{' : ','}"${field}":' || pg_catalog.to_json(${field})::text`;
    return isOptionalField(field) ? `coalesce(${member}, '')` : member;
  })
  .join(' || ')} || '}'`;

/**
 * SQL for the total bytes of all fields of a plant. `octet_length` returns the length of a text without
 * reading the text.
 */
export const RAW_BYTES = plantFields.map((field) => `coalesce(octet_length(${field}::text), 0)`).join(' + ');

/** Names of the values of a page in a statement: parameters, or columns of an outer query. */
interface PageValues {
  readonly owner: string;
  readonly from: string;
  readonly to: string;
  readonly plants: string;
  readonly bytes: string;
}

const PARAMETERS: PageValues = { owner: '$1', from: '$2', to: '$3', plants: '$4', bytes: '$5' };

function moreAfter(id: string, { owner, to }: PageValues = PARAMETERS): string {
  return `EXISTS (SELECT 1 FROM plants AS next WHERE next.owner = ${owner} AND next.id > ${id} AND next.id <= ${to}) AS more`;
}

/** Max bytes of text that the first statement of pages renders, before the size of the pages is known. */
const RENDERED_BYTES = 4 * 1024 * 1024;

/** Max plants of a page that shares its statement, and max pages that share one. */
const SHARED_PLANTS = 64;
const SHARED_PAGES = 16;

/** Statements among which pages that arrive together are divided: a slow page delays fewer others. */
const PARALLEL_STATEMENTS = 2;

interface WantedPage {
  readonly owner: string;
  readonly range: IdRange;
  readonly limit: PageLimit;
}

/**
 * Returns a function that reads a page. The first statement reads up to the max number of plants, which usually
 * fit into the byte limit. Short pages that arrive together share it. If the plants do not fit, a second
 * statement adds up their sizes and ends the page at the limit.
 */
export function createPageReader(
  read: (statement: Statement) => Promise<readonly Row[]>,
): (owner: string, range: IdRange, limit: PageLimit) => Promise<PlantPage> {
  async function readRows(pages: readonly WantedPage[]): Promise<readonly (Row | undefined)[]> {
    const plants = pages.reduce((sum, { limit }) => sum + limit.plants, 0);
    const max = Math.floor(RENDERED_BYTES / plants);
    const [only, ...others] = pages;
    if (only !== undefined && others.length === 0) return read({ ...ONE_PAGE, values: valuesOf(only, max) });
    const rows = await read({ ...PAGES, values: columnsOf(pages, max) });
    const rowOf = new Map(rows.map((row) => [Number(row.place), row]));
    return pages.map((_page, index) => rowOf.get(index + 1));
  }

  const readShared = shareReads({ max: SHARED_PAGES, parallel: PARALLEL_STATEMENTS, readAll: readRows });

  async function readFirst(page: WantedPage): Promise<Row | undefined> {
    if (page.limit.plants <= SHARED_PLANTS) return readShared(page);
    const [row] = await readRows([page]);
    return row;
  }

  return async (owner, range, limit) => {
    const row = await readFirst({ owner, range, limit });
    const page = toPage(row);
    if (page !== undefined && (Number(row?.count) < 2 || page.bytes <= limit.bytes)) return page;
    const values = [owner, range.from.toString(), range.to.toString(), limit.plants, limit.bytes];
    const fitting = toPage((await read({ ...FITTING_ROWS, values }))[0]);
    if (fitting === undefined) throw unreadablePage(range.from);
    return fitting;
  };
}

/** Returns the values of ONE_PAGE. No plant of more than `maxBytes` bytes is rendered. */
function valuesOf({ owner, range, limit }: WantedPage, maxBytes: number): readonly unknown[] {
  return [owner, `${range.from}`, `${range.to}`, limit.plants, Math.min(limit.bytes, maxBytes)];
}

/** Returns the values of PAGES: of each value of `valuesOf`, those of all pages. */
function columnsOf(pages: readonly WantedPage[], maxBytes: number): readonly unknown[] {
  return [
    pages.map(({ owner }) => owner),
    integerArray(pages.map(({ range }) => range.from)),
    integerArray(pages.map(({ range }) => range.to)),
    integerArray(pages.map(({ limit }) => limit.plants)),
    integerArray(pages.map(({ limit }) => Math.min(limit.bytes, maxBytes))),
  ];
}

function toPage(row: Row | undefined): PlantPage | undefined {
  if (typeof row?.json !== 'string') return undefined;
  const { json, count, last, more, large } = row;
  const page = { json, bytes: Buffer.byteLength(json) };
  if (typeof large === 'number') return { ...page, largeBytes: large };
  if (typeof last !== 'string' || more !== true) return page;
  return { ...page, cut: { last: BigInt(last), count: Number(count) } };
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
  if (typeof json !== 'string' || typeof id !== 'string') throw unreadablePage(from);
  return { json: encoder.encode(json), id: BigInt(id), more: more === true };
}

const FIRST_PLANT = 'FROM plants WHERE owner = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT 1';

/** SQL that reads a page with all its plants, or without JSON if a plant has more than `bytes` bytes. */
function pageOf(page: PageValues): string {
  const { owner, from, to, plants, bytes } = page;
  return `SELECT CASE WHEN largest <= ${bytes} THEN '[' || coalesce(json, '') || ']' END AS json, count, last,
                 ${moreAfter('rendered.last', page)}
            FROM (SELECT string_agg(CASE WHEN ${RAW_BYTES} <= ${bytes} THEN ${PLANT} END, ',' ORDER BY id) AS json,
                         count(*) AS count, max(id) AS last, coalesce(max(${RAW_BYTES}), 0) AS largest
                    FROM (SELECT id, ${FIELD_COLUMNS} FROM plants
                           WHERE owner = ${owner} AND id BETWEEN ${from} AND ${to}
                           ORDER BY id LIMIT ${plants}) AS page) AS rendered`;
}

const ONE_PAGE: Statement = { name: 'list-plants', text: pageOf(PARAMETERS) };

const PAGES: Statement = {
  name: 'list-plants-of-several',
  text: `SELECT place, page.*
           FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
                  AS wanted (owner, from_id, to_id, plants, bytes, place)
          CROSS JOIN LATERAL (${pageOf({
            owner: 'wanted.owner',
            from: 'wanted.from_id',
            to: 'wanted.to_id',
            plants: 'wanted.plants',
            bytes: 'wanted.bytes',
          })}) AS page`,
};

const FITTING_ROWS: Statement = {
  name: 'list-large-plants',
  // `OFFSET 0` prevents the planner from flattening the subquery. Otherwise the server may render a row again
  // for each use of `plant`.
  text: `SELECT '[' || coalesce(json, '') || ']' AS json, count, last, ${moreAfter('page.last')},
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
