// cspell:words relkind indisunique indisvalid indpred indexdef indexrelid indnkeyatts

/** SQL of the table (`of`) and columns (`names`) of each key that the store relies on. */
export const KEYS = `(VALUES ('plants', 'owner, id'), ('idempotency_keys', 'owner, key'),
                             ('tokens', 'digest'), ('tokens', 'id')) AS keys (of, names)`;

/** SQL of the names of the columns of an index in `pg_index`, as an array. */
export const INDEX_COLUMNS = `ARRAY(SELECT trim('"' FROM pg_get_indexdef(indexrelid, place, true))
                                      FROM generate_series(1, indnkeyatts) AS place ORDER BY place)`;

/**
 * SQL of the keys that the store relies on and its tables lack, as `table (columns)`. NULL if there are all. Ignores views, and
 * tables that are missing. With NOT EXISTS, the server would read all of pg_index, also the indexes of other tables.
 */
export const MISSING_KEYS = `(
  SELECT string_agg(keys.of || ' (' || keys.names || ')', ', ' ORDER BY keys.of, keys.names)
    FROM ${KEYS}
   WHERE (SELECT relkind FROM pg_class WHERE oid = to_regclass(keys.of)) <> 'v'
     AND keys.names <> ALL (ARRAY(
       SELECT pg_catalog.array_to_string(${INDEX_COLUMNS}, ', ')
         FROM pg_index
        WHERE indrelid = to_regclass(keys.of) AND indisunique AND indisvalid AND indpred IS NULL)))`;

/** Message about missing keys. `keys` is a value of MISSING_KEYS. */
export function withoutKeys(keys: string): string {
  return `there is no valid unique index on ${keys}; without it, duplicates are stored. Run \`CREATE UNIQUE INDEX ON …\` for each, or restore the backup again completely`;
}
