// Where the package is installed: from 'plant-store/client'.
import { createClient, PlantStoreError } from '../src/client/client.ts';

/**
 * The typed client: creates a plant, lists all, deletes it, and shows what an error looks like.
 *
 *   npx node examples/client.ts URL TOKEN
 */

const [url, token] = process.argv.slice(2);
if (url === undefined || token === undefined)
  throw new Error('call it as: npx node examples/client.ts URL TOKEN');

const client = createClient({ url, token });
const id = 9223372036854775807n;

await client.createPlant({ id, name: 'Black alder', tag: 'Alnus glutinosa' });
for await (const plant of client.listPlants()) process.stdout.write(`${plant.name}, ${plant.tag}\n`);
await client.deletePlant(id);
try {
  await client.deletePlant(id);
} catch (failure: unknown) {
  if (!(failure instanceof PlantStoreError)) throw failure;
  process.stdout.write(`${failure.error}: ${failure.message}\n`);
}
