import { hash } from 'node:crypto';

/** Counts rows and computes a checksum that does not depend on their order. */
export interface RowChecksum<T> {
  add(rows: readonly T[]): void;
  count(): number;
  /** Returns the sum of the first 64 bits of each row's SHA-256, as 16 hexadecimal digits. */
  checksum(): string;
}

/**
 * Creates a checksum over all fields of all rows. The checksum ignores the order of the rows, since SQLite
 * and PostgreSQL may return rows in different orders.
 */
export function createRowChecksum<T extends object>(): RowChecksum<T> {
  let count = 0;
  let sum = 0n;
  return {
    add: (rows) => {
      for (const row of rows) {
        const digest = hash('sha256', canonicalText(row), 'buffer');
        sum = BigInt.asUintN(64, sum + digest.readBigUInt64BE());
      }
      count += rows.length;
    },
    count: () => count,
    checksum: () => sum.toString(16).padStart(16, '0'),
  };
}

// Returns the values of a row as JSON, without field names. store/rows.ts builds all rows, so the fields have
// the same order on both engines.
function canonicalText(row: object): string {
  return JSON.stringify(Object.values(row).map(toText));
}

function toText(value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value;
}
