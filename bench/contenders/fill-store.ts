import { DatabaseSync } from 'node:sqlite';
import { NEW_PLANT } from '../workload.ts';

/**
 * Lane (a set of ids) of the stored plants; different lanes share no id (bench/load/ids.ts). Measured runs
 * use lanes with lower numbers.
 */
const LANE = 1_023;

/**
 * Inserts plants into an embedded store by SQL, about a million per second, for each owner in turn. Their ids
 * are spread evenly over the range of the workload `createAtRandom`, but differ from its ids.
 */
export function fillStore(file: string, plants: number, owners: { first: string; count: number }): void {
  using db = new DatabaseSync(file);
  // Uses BigInt, since SQLite would store a number as REAL.
  db.prepare(
    `INSERT INTO plants (owner, id, name, tag)
     WITH RECURSIVE counted (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ?1)
     SELECT CASE n % ?2 WHEN 0 THEN ?3 ELSE ?3 || n % ?2 END,
            (1 << 43) + n * ((1 << 32) / ?1) * 1024 + ${LANE}, ?4, ?5
       FROM counted`,
  ).run(BigInt(plants), BigInt(owners.count), owners.first, NEW_PLANT.name, NEW_PLANT.tag);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
}
