import { DatabaseSync } from 'node:sqlite';
import { NEW_PLANT } from '../workload.ts';

/** The lane that no run of random ids is in. */
const LANE = 1_023;

/**
 * Puts plants into an embedded store by SQL, about a million a second, shared among owners in turns. Their ids are spread evenly over
 * those that `createAtRandom` takes, and are none of them.
 */
export function fillStore(file: string, plants: number, owners: { first: string; count: number }): void {
  using db = new DatabaseSync(file);
  // BigInt, since a number would be bound as REAL.
  db.prepare(
    `INSERT INTO plants (owner, id, name, tag)
     WITH RECURSIVE counted (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < ?1)
     SELECT CASE n % ?2 WHEN 0 THEN ?3 ELSE ?3 || n % ?2 END,
            (1 << 43) + n * ((1 << 32) / ?1) * 1024 + ${LANE}, ?4, ?5
       FROM counted`,
  ).run(BigInt(plants), BigInt(owners.count), owners.first, NEW_PLANT.name, NEW_PLANT.tag);
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)');
}
