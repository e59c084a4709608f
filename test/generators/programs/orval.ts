import './exact-json.js';
import { createPlant, deletePlant, listPlants } from './plant-store.js';

// The URL of the service is in the generated file.
const [, token = ''] = process.argv.slice(2);
const options = { headers: { Authorization: `Bearer ${token}` } };

for (const plant of [
  { id: 9007199254740993n, name: 'Fern', tag: 'Polypodium' },
  { id: 9223372036854775807n, name: 'Black alder' },
]) {
  const created = await createPlant(plant, options);
  if (created.status !== 200) throw new Error(created.data.message);
  console.log(`created ${created.data.name}, ${created.data.tag ?? 'no tag'}`);
}

const again = await createPlant({ id: 9007199254740993n, name: 'Fern' }, options);
if (again.status !== 200) console.log(`error ${again.status} ${again.data.error}`);

let cursor: string | undefined;
do {
  const page = await listPlants({ limit: 1, cursor }, options);
  if (page.status !== 200) throw new Error(page.data.message);
  for (const { name } of page.data) console.log(`page ${name}`);
  cursor = /[?&]cursor=([^&>]+)/.exec(page.headers.get('Link') ?? '')?.[1];
} while (cursor !== undefined);

for (const id of [9007199254740992n, 9007199254740993n, 9223372036854775807n]) {
  const deleted = await deletePlant(id, options);
  console.log(deleted.status === 204 ? 'deleted' : `error ${deleted.status} ${deleted.data.error}`);
}

const left = await listPlants(undefined, options);
console.log(`left ${left.status === 200 ? left.data.length : left.data.message}`);
