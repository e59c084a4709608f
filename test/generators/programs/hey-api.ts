import './exact-json.js';
import { client } from './plant-store/client.gen.js';
import { createPlant, deletePlant, listPlants } from './plant-store/sdk.gen.js';

const [url = '', token = ''] = process.argv.slice(2);
client.setConfig({ baseUrl: url, auth: token });

for (const body of [
  { id: 9007199254740993n, name: 'Fern', tag: 'Polypodium' },
  { id: 9223372036854775807n, name: 'Black alder' },
]) {
  const { data, error } = await createPlant({ body });
  if (data === undefined) throw new Error(error?.message);
  console.log(`created ${data.name}, ${data.tag ?? 'no tag'}`);
}

const again = await createPlant({ body: { id: 9007199254740993n, name: 'Fern' } });
console.log(`error ${again.response?.status} ${again.error?.error}`);

let cursor: string | undefined;
do {
  const { data = [], response } = await listPlants({ query: { limit: 1, cursor } });
  for (const { name } of data) console.log(`page ${name}`);
  cursor = /[?&]cursor=([^&>]+)/.exec(response?.headers.get('Link') ?? '')?.[1];
} while (cursor !== undefined);

for (const id of [9007199254740992n, 9007199254740993n, 9223372036854775807n]) {
  const { error, response } = await deletePlant({ path: { id } });
  console.log(error === undefined ? 'deleted' : `error ${response?.status} ${error.error}`);
}

const { data: left = [] } = await listPlants();
console.log(`left ${left.length}`);
