/** A number and what it counts: `1 plant`, `630 plants`. */
export function count(number: number, thing: string): string {
  return `${number} ${thing}${number === 1 ? '' : 's'}`;
}
