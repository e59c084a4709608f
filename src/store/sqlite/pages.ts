import type { DatabaseSync, SQLOutputValue, StatementSync } from 'node:sqlite';
import { isOptionalField, type Plant, plantFields } from '../../plant.ts';
import { FIELD_COLUMNS } from '../rows.ts';
import { type IdRange, type PageLimit, type PlantPage, StoreDamaged } from '../store.ts';
import { isTooBig } from './errors.ts';

// A CASE for each set of present fields: json_patch, which drops nulls, takes four times as long.
/** A plant as JSON. */
const PLANT = renderFields([], plantFields);

function renderFields(present: readonly string[], [field, ...rest]: readonly (keyof Plant)[]): string {
  if (field === undefined) return `json_object(${present.join(', ')})`;
  const withField = renderFields([...present, `'${field}', ${field}`], rest);
  if (!isOptionalField(field)) return withField;
  return `CASE WHEN ${field} IS NULL THEN ${renderFields(present, rest)} ELSE ${withField} END`;
}

/** Bytes in the fields of a row; `octet_length` reads the header of the row, not its texts. */
const FIELD_BYTES = plantFields.map((field) => `coalesce(octet_length(${field}), 0)`).join(' + ');

/** JSON makes up to 6 bytes of one (`\u0001`). Each member also has a name, or a number of up to 20 digits. */
const JSON_GROWTH = 6;
const MEMBER_NAMES = 32 * plantFields.length;

/** The limit on values must exceed all that other statements of the connection read and bind. */
const SMALLEST_VALUE_LIMIT = 64 * 1024;

/** This number of plants, each below the limit on values, always fits into memory. */
const SHORT_PAGE = 64;

const EMPTY_PAGE: PlantPage = { json: '[]', count: 0, last: undefined, more: false };

type ReadPage = (owner: string, range: IdRange, limit: PageLimit) => PlantPage;

/**
 * Prepares the statements that read pages. SQLite's limit on values (`sqlite3_limit`) bounds their memory. Most pages
 * take one statement below that limit; a page that exceeds it is read again row by row.
 */
export function preparePages(db: DatabaseSync): ReadPage {
  // `json_group_array` is faster but checks the limit at its end; `group_concat` checks it at each row.
  const short = prepareWhole(db, `json_group_array(${PLANT})`);
  const long = prepareWhole(db, `'[' || coalesce(group_concat(${PLANT}), '') || ']'`);
  const single = db.prepare(
    `SELECT id, CASE WHEN ${FIELD_BYTES} <= ?4 THEN ${PLANT} END AS json
       FROM plants WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id`,
  );
  single.setReadBigInts(true);
  // `||` and `group_concat` would copy a large plant once more.
  const one = db.prepare(
    `SELECT concat('[', ${PLANT}, ']') AS json, 1 AS count, id AS last,
            EXISTS (SELECT 1 FROM plants AS next WHERE next.owner = ?1 AND next.id > plants.id AND next.id <= ?3) AS more
       FROM plants WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id LIMIT 1`,
  );
  one.setReadBigInts(true);
  let valueLimit = Number.POSITIVE_INFINITY;

  function limitValues(bytes: number): void {
    if (bytes === valueLimit) return;
    db.limits.length = bytes;
    valueLimit = bytes;
  }

  function toPage({ json, count, last, more }: Record<string, SQLOutputValue>, from: bigint): PlantPage {
    // A value that exceeds V8's max string length (2^29 - 24 characters) is returned as undefined.
    if (typeof json !== 'string') throw unreadable(from);
    return {
      json,
      count: Number(count),
      last: typeof last === 'bigint' ? last : undefined,
      more: more === 1n,
    };
  }

  /** Reads a page in one statement; undefined when it exceeds the limit of bytes. */
  function tryWhole(owner: string, range: IdRange, { plants, bytes }: PageLimit): PlantPage | undefined {
    limitValues(Math.max(bytes, SMALLEST_VALUE_LIMIT));
    try {
      const whole = plants <= SHORT_PAGE ? short : long;
      const page = toPage(whole.get(owner, range.from, range.to, plants) ?? {}, range.from);
      const fits = bytes >= SMALLEST_VALUE_LIMIT || page.count < 2 || Buffer.byteLength(page.json) <= bytes;
      return fits ? page : undefined;
    } catch (error: unknown) {
      if (isTooBig(error)) return undefined;
      throw error;
    }
  }

  /** Reads the plants that fit; undefined when the first one exceeds the limit of bytes. */
  function readFitting(
    owner: string,
    { from, to }: IdRange,
    { plants, bytes }: PageLimit,
  ): PlantPage | undefined {
    limitValues(Math.max(JSON_GROWTH * bytes + MEMBER_NAMES, SMALLEST_VALUE_LIMIT));
    const members: string[] = [];
    let last: bigint | undefined;
    let size = '['.length;
    let more = false;
    for (const { id, json } of single.iterate(owner, from, to, bytes)) {
      if (typeof id !== 'bigint') throw unreadable(from);
      const isFirst = last === undefined;
      if (typeof json !== 'string') {
        if (isFirst) return undefined;
        more = true;
        break;
      }
      size += Buffer.byteLength(json) + ','.length;
      more = !isFirst && (members.length === plants || size > bytes);
      if (more) break;
      members.push(json);
      last = id;
    }
    return { json: `[${members.join(',')}]`, count: members.length, last, more };
  }

  function readOne(owner: string, { from, to }: IdRange): PlantPage {
    limitValues(Number.POSITIVE_INFINITY);
    try {
      const row = one.get(owner, from, to);
      return row === undefined ? EMPTY_PAGE : toPage(row, from);
    } catch (error: unknown) {
      throw isTooBig(error) ? unreadable(from) : error;
    }
  }

  return (owner, range, limit) => {
    // One statement for one plant: each statement reads whole rows, of megabytes perhaps, to find its first id.
    if (limit.plants === 1) return readOne(owner, range);
    return tryWhole(owner, range, limit) ?? readFitting(owner, range, limit) ?? readOne(owner, range);
  };
}

// `+`: SQLite compiles a statement again at each bind of a bare LIMIT parameter, to plan for its value.
function prepareWhole(db: DatabaseSync, array: string): StatementSync {
  const statement = db.prepare(
    `SELECT json, count, last,
            EXISTS (SELECT 1 FROM plants WHERE owner = ?1 AND id > last AND id <= ?3) AS more
       FROM (SELECT ${array} AS json, count(*) AS count, max(id) AS last
               FROM (SELECT id, ${FIELD_COLUMNS} FROM plants
                      WHERE owner = ?1 AND id BETWEEN ?2 AND ?3 ORDER BY id LIMIT +?4))`,
  );
  statement.setReadBigInts(true);
  return statement;
}

function unreadable(from: bigint): StoreDamaged {
  return new StoreDamaged(
    `the plants from the id ${from} on cannot be read as JSON; \`plant-store export\` may read them`,
  );
}
