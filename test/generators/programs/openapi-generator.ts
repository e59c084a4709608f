import './exact-json.js';
import { Configuration, PlantsApi, ResponseError } from './plant-store/index.js';

const [basePath = '', accessToken = ''] = process.argv.slice(2);
const api = new PlantsApi(new Configuration({ basePath, accessToken }));

/** The error of a rejected call, as a line. */
async function errorOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'deleted';
  } catch (error: unknown) {
    if (!(error instanceof ResponseError)) throw error;
    const body: { error: number } = await error.response.json();
    return `error ${error.response.status} ${body.error}`;
  }
}

for (const newPlant of [
  { id: 9007199254740993n, name: 'Fern', tag: 'Polypodium' },
  { id: 9223372036854775807n, name: 'Black alder' },
]) {
  const plant = await api.createPlant({ newPlant });
  console.log(`created ${plant.name}, ${plant.tag ?? 'no tag'}`);
}

console.log(await errorOf(api.createPlant({ newPlant: { id: 9007199254740993n, name: 'Fern' } })));

let cursor: string | undefined;
do {
  const page = await api.listPlantsRaw({ limit: 1, cursor });
  for (const { name } of await page.value()) console.log(`page ${name}`);
  cursor = /[?&]cursor=([^&>]+)/.exec(page.raw.headers.get('Link') ?? '')?.[1];
} while (cursor !== undefined);

for (const id of [9007199254740992n, 9007199254740993n, 9223372036854775807n]) {
  console.log(await errorOf(api.deletePlant({ id })));
}

console.log(`left ${(await api.listPlants()).length}`);
