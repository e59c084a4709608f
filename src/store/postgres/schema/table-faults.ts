// cspell:words relkind relpersistence attname atttypid atttypmod attnotnull atthasdef attidentity attgenerated attcollation
// cspell:words attrelid attnum attisdropped collisdeterministic collname tgname tgrelid tgisinternal tgenabled tgtype rulename
// cspell:words indimmediate indrelid indisvalid indisunique indpred indexdef indexrelid conname conrelid confrelid contype coninhcount
// cspell:words collprovider collversion regcollation datcollversion datname
// cspell:words constraintdef tgparentid inhrelid inhparent relispartition
import { isOptionalField, plantFields } from '../../../plant.ts';
import type { Row } from '../../rows.ts';
import { type Connection, FIELD_TYPES } from '../statements.ts';
import { queryIfSupported } from '../transaction.ts';
import { INDEX_COLUMNS, KEYS, MISSING_KEYS, withoutKeys } from './missing-keys.ts';

/** The columns of each table that the migrations create. */
const TABLES: Readonly<Record<string, readonly string[]>> = {
  plants: [
    'owner text NOT NULL',
    'id bigint NOT NULL',
    ...plantFields.map(
      (field) => `${field} ${FIELD_TYPES[field]}${isOptionalField(field) ? '' : ' NOT NULL'}`,
    ),
  ],
  idempotency_keys: [
    'owner text NOT NULL',
    'key text NOT NULL',
    'digest bytea NOT NULL',
    'outcome text NOT NULL',
    'first_used_at bigint NOT NULL',
  ],
  tokens: [
    'owner text NOT NULL',
    'id text NOT NULL',
    'digest bytea NOT NULL',
    'name text NOT NULL',
    'scopes text NOT NULL',
    'created_at bigint NOT NULL',
    'expires_at bigint',
    'revoked_at bigint',
    'last_used_at bigint',
  ],
};

/**
 * SQL of the columns of tables. Leaves out a default, which the service never uses. A collation counts if it makes different
 * owners, keys or ids of tokens equal. A row without a value in a needed column is rejected.
 */
const COLUMNS = `
  SELECT relname AS of, relkind = 'v' AS is_view, attname AS name,
         pg_catalog.concat(attname, ' ', trim('"' FROM format_type(atttypid, atttypmod)),
                CASE WHEN attname IN ('owner', 'key', 'id') AND NOT collisdeterministic THEN ' COLLATE ' || collname END,
                CASE WHEN attnotnull THEN ' NOT NULL' END,
                CASE WHEN attgenerated <> '' OR attidentity = 'a' THEN ' GENERATED ALWAYS' END) AS definition,
         attnotnull AND NOT atthasdef AND attidentity = '' AS is_needed
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_collation ON pg_collation.oid = attcollation
   WHERE attrelid IN (SELECT to_regclass(name) FROM pg_catalog.unnest($1::text[]) AS name) AND attnum > 0 AND NOT attisdropped`;

/**
 * SQL of what can change, reject or lose stored rows in the tables and their partitions: additions, and tables that are not
 * logged; and of the index by age if no valid one begins with its column. Triggers for TRUNCATE cannot, such as those of Citus,
 * nor unique indexes with all columns of a key, unless ON CONFLICT fails because they are deferrable. Ignores views.
 */
const OTHER_FAULTS = `
  WITH RECURSIVE roots AS (SELECT oid, relname AS name FROM pg_class
                  WHERE oid IN (SELECT to_regclass(name) FROM pg_catalog.unnest($1::text[]) AS name) AND relkind <> 'v'),
       tree AS (SELECT oid, name AS root FROM roots
                 UNION SELECT inhrelid, root FROM tree JOIN pg_inherits ON inhparent = tree.oid),
       tables AS (SELECT tree.oid, root, relname AS name, relpersistence FROM tree JOIN pg_class ON pg_class.oid = tree.oid),
       additions AS (
         SELECT 'trigger' AS kind, tgname AS name, tgrelid AS place FROM pg_trigger
          WHERE NOT tgisinternal AND tgparentid = 0 AND tgenabled IN ('O', 'A') AND tgtype & 28 <> 0
         UNION ALL
         SELECT 'rule', rulename, ev_class FROM pg_rewrite WHERE ev_enabled IN ('O', 'A')
         UNION ALL
         SELECT 'constraint', conname, place
           FROM pg_constraint, pg_catalog.unnest(ARRAY[conrelid, confrelid]) AS place
          WHERE contype IN ('c', 'f', 'x') AND coninhcount = 0
            AND NOT (place IN (SELECT oid FROM tables WHERE root = 'idempotency_keys')
                     AND pg_get_constraintdef(oid) ~ '^CHECK .*outcome.*''created''.*''idTaken''')
         UNION ALL
         SELECT CASE WHEN indimmediate THEN 'unique index' ELSE 'deferrable unique index' END, indexes.relname, indrelid
           FROM tables JOIN pg_index ON indrelid = tables.oid JOIN pg_class AS indexes ON indexes.oid = indexrelid
          WHERE indisunique AND NOT ((indimmediate OR root = 'tokens') AND EXISTS (
            SELECT FROM ${KEYS} WHERE keys.of = tables.root AND string_to_array(keys.names, ', ') <@ ${INDEX_COLUMNS}))
         UNION ALL
         SELECT 'child table', relname, inhparent
           FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE NOT relispartition)
  SELECT DISTINCT pg_catalog.concat('the ', kind, ' ', additions.name, ' on ', tables.name, ' is not part of a store') AS fault
    FROM additions JOIN tables ON tables.oid = additions.place
  UNION ALL
  SELECT pg_catalog.concat('the table ', name, ' is unlogged, so a crash empties it: \`ALTER TABLE ', oid::regclass, ' SET LOGGED;\`')
    FROM tables WHERE relpersistence = 'u'
  UNION ALL
  SELECT 'the index idempotency_keys_by_age is missing: \`CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);\`'
    FROM roots
   WHERE roots.name = 'idempotency_keys' AND 'first_used_at' <> ALL (ARRAY(
     SELECT trim('"' FROM pg_get_indexdef(indexrelid, 1, true)) FROM pg_index
      WHERE indrelid = roots.oid AND indisvalid AND indpred IS NULL))
   ORDER BY fault`;

/**
 * SQL of the faults of collations: if a library of the system sorts differently since an index was made, the server
 * misses rows in it (https://www.postgresql.org/docs/current/sql-altercollation.html). PostgreSQL 15 and newer note the
 * version, except for `C`.
 */
const CHANGED_COLLATIONS = `
  WITH used AS (
    SELECT CASE WHEN collprovider = 'd' THEN datcollversion ELSE collversion END AS before,
           CASE WHEN collprovider = 'd' THEN pg_database_collation_actual_version(pg_database.oid)
                ELSE pg_collation_actual_version(pg_collation.oid) END AS now,
           CASE WHEN collprovider = 'd' THEN pg_catalog.concat('DATABASE ', pg_catalog.quote_ident(datname))
                ELSE pg_catalog.concat('COLLATION ', pg_collation.oid::regcollation) END AS object
      FROM pg_attribute JOIN pg_collation ON pg_collation.oid = attcollation
           JOIN pg_database ON datname = current_database()
     WHERE attrelid IN (SELECT to_regclass(name) FROM pg_catalog.unnest($1::text[]) AS name)
       AND attname IN ('owner', 'key', 'id'))
  SELECT DISTINCT pg_catalog.concat('the collation of the keys was ', before, ' and is now ', now,
    ', so rows may be missed or stored twice: run \`REINDEX TABLE CONCURRENTLY …;\` for each table, then \`ALTER ', object,
    ' REFRESH COLLATION VERSION;\`') AS fault
    FROM used WHERE before <> now`;

/**
 * Returns the faults of the tables of a store: a table, column, key or index of the migrations that is missing or differs, and
 * an addition that may change, reject or lose what is stored. Other additions are harmless.
 */
export async function findTableFaults(connection: Connection): Promise<readonly string[]> {
  const values = [Object.keys(TABLES)];
  const columns = await connection.query({ text: COLUMNS, values });
  const [row] = await connection.query({ text: `SELECT ${MISSING_KEYS} AS keys` });
  const others = await connection.query({ text: OTHER_FAULTS, values });
  const collations = await queryIfSupported(connection, { text: CHANGED_COLLATIONS, values });
  return [
    ...Object.keys(TABLES).flatMap((table) => faultsOfTable(table, columns)),
    ...(typeof row?.keys === 'string' ? [withoutKeys(row.keys)] : []),
    ...[...others, ...collations].map(({ fault }) => String(fault)),
  ];
}

function faultsOfTable(table: string, rows: readonly Row[]): readonly string[] {
  const columns = rows.filter(({ of }) => of === table);
  const [first] = columns;
  if (first === undefined) return [`the table ${table} is missing`];
  if (first.is_view === true) return [];
  const needed = new Set(columns.filter((column) => column.is_needed === true).map(({ name }) => name));
  const definitions = new Map(columns.map(({ name, definition }) => [name, definition]));
  const faults = (TABLES[table] ?? []).flatMap((definition) => {
    const [name = ''] = definition.split(' ', 1);
    needed.delete(name);
    if (!definitions.has(name)) return [`the column ${table}.${name} is missing: \`${definition}\``];
    if (definitions.get(name) === definition) return [];
    return [`the column ${table}.${name} differs from \`${definition}\``];
  });
  return [...faults, ...[...needed].map((name) => `the column ${table}.${name} is not part of a store`)];
}
