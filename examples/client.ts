// In a project that installs the package, import from 'plant-store-client'.
import { createClient, ErrorCode, PlantStoreError } from '../client/src/client.ts';

/**
 * Uses the typed client: creates a plant, lists all, and deletes it twice. The second deletion shows an error. Any other
 * error ends the program with exit code 1.
 *
 *   npx node examples/client.ts URL TOKEN
 */

const [url, token] = process.argv.slice(2);
if (!url || !token) {
  process.stderr.write('usage: npx node examples/client.ts URL TOKEN\n');
  process.exit(1);
}

const client = createClient({ url, token });
const id = 9223372036854775807n;

await client.createPlant({ id, name: 'Black alder', tag: 'Alnus glutinosa' });
for await (const plant of client.listPlants())
  process.stdout.write(`${plant.name}, ${plant.tag ?? 'no tag'}\n`);
await client.deletePlant(id);
try {
  await client.deletePlant(id);
} catch (failure: unknown) {
  if (!(failure instanceof PlantStoreError) || failure.code !== ErrorCode.noSuchPlant) throw failure;
  process.stdout.write(`${failure.code}: ${failure.message}\n`);
}
