// cspell:words relpersistence
import type { Row } from '../../rows.ts';
import type { Statement } from '../statements.ts';

/** Query for settings of the server and properties of the tables by which a crash or failover may lose acknowledged writes. */
export const FIND_DURABILITY_FAULTS: Statement = {
  text: `SELECT (SELECT string_agg(name, ' and ' ORDER BY name)
                   FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off') AS settings_off,
                current_setting('synchronous_standby_names', true) = '' AS is_asynchronous,
                (SELECT string_agg(relname, ', ' ORDER BY relname)
                   FROM pg_class
                  WHERE oid IN (to_regclass('plants'), to_regclass('idempotency_keys'), to_regclass('tokens'))
                    AND relpersistence = 'u') AS unlogged`,
};

/** Returns a text for each fault in a row of FIND_DURABILITY_FAULTS. `hosts` is the number of hosts of the database URL. */
export function durabilityFaults(row: Row | undefined, hosts: number): readonly string[] {
  const faults: string[] = [];
  if (typeof row?.settings_off === 'string')
    faults.push(
      `${row.settings_off} off: a crash of the server may lose acknowledged writes, unless its storage prevents that; set it to on`,
    );
  if (typeof row?.unlogged === 'string')
    faults.push(
      `unlogged tables: ${row.unlogged}; a crash of the server empties them; run ALTER TABLE … SET LOGGED for each`,
    );
  if (row?.is_asynchronous === true && hosts > 1)
    faults.push(
      'no synchronous standby: a failover may lose acknowledged writes; set synchronous_standby_names',
    );
  return faults;
}
