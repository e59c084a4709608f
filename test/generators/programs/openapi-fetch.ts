import createClient from 'openapi-fetch';
import './exact-json.js';
import type { paths } from './plant-store.js';

const [url = '', token = ''] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

for (const body of [
  { id: 9007199254740993n, name: 'Fern', tag: 'Polypodium' },
  { id: 9223372036854775807n, name: 'Black alder' },
]) {
  const { data, error } = await client.POST('/plants', { body });
  if (data === undefined) throw new Error(error?.message);
  console.log(`created ${data.name}, ${data.tag ?? 'no tag'}`);
}

const again = await client.POST('/plants', { body: { id: 9007199254740993n, name: 'Fern' } });
console.log(`error ${again.response.status} ${again.error?.error}`);

let cursor: string | undefined;
do {
  const query = cursor === undefined ? { limit: 1 } : { limit: 1, cursor };
  const { data = [], response } = await client.GET('/plants', { params: { query } });
  for (const { name } of data) console.log(`page ${name}`);
  cursor = /[?&]cursor=([^&>]+)/.exec(response.headers.get('Link') ?? '')?.[1];
} while (cursor !== undefined);

for (const id of [9007199254740992n, 9007199254740993n, 9223372036854775807n]) {
  const { error, response } = await client.DELETE('/plants/{id}', { params: { path: { id } } });
  console.log(error === undefined ? 'deleted' : `error ${response.status} ${error.error}`);
}

const { data: left = [] } = await client.GET('/plants');
console.log(`left ${left.length}`);
