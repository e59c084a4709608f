import { hash } from 'node:crypto';

/** How many rows there are, and a checksum that their order does not change. */
export interface Tally<T> {
  add(rows: readonly T[]): void;
  count(): number;
  /** The sum of the first 64 bits of the SHA-256 of each row, as 16 hexadecimal digits. */
  checksum(): string;
}

/** Tallies rows by all of their fields. Two engines may hold the same rows in different orders. */
export function createTally<T extends object>(): Tally<T> {
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

// Both engines make their rows by the same functions (store/rows.ts), so their fields come in one order.
function canonicalText(row: object): string {
  return JSON.stringify(Object.values(row).map(toText));
}

function toText(value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value;
}
