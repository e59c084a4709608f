import { readFileSync } from 'node:fs';

const FILE = new URL('../../examples/plants.ndjson', import.meta.url);

interface ExamplePlant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

/** Returns the plants of the example file, in id order. */
export function examplePlants(): readonly ExamplePlant[] {
  const lines = readFileSync(FILE, 'utf8').trimEnd().split('\n');
  return lines.map((line): ExamplePlant => JSON.parse(line));
}
