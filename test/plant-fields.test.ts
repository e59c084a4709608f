import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  createClient,
  type NewPlant as NewPlantOfClient,
  type Plant as PlantOfClient,
} from '../client/src/client.ts';
import { formats } from '../src/cli/plant-file.ts';
import type { Entry } from '../src/formats/format.ts';
import {
  digestPlant,
  isOptionalField,
  type Plant,
  plantFields,
  renderPlant,
  toPlantRow,
} from '../src/plant.ts';
import { openBulk, openStore } from '../src/store/open-engine.ts';
import { connections, engines } from './support/engines.ts';
import { FULL_PLANT, OTHER_FULL_PLANT } from './support/plants.ts';
import { newInstallation } from './support/program.ts';
import { startService } from './support/service.ts';
import { create, EVERY_ID, upTo } from './support/store-setup.ts';

const { id: _, ...FULL_FIELDS } = FULL_PLANT;

/** The full plant without some of its optional fields, for each set of them. */
const PARTIAL_PLANTS = plantFields
  .filter(isOptionalField)
  .reduce<readonly Plant[]>(
    (plants, field) => plants.flatMap((plant) => [plant, without(plant, field)]),
    [FULL_FIELDS],
  );

function without(plant: Plant, field: keyof Plant): Plant {
  const { [field]: _, ...others } = plant;
  return { name: plant.name, ...others };
}

// They compile only when the client and the service have the same fields with the same types.
const toClient = (plant: Required<Plant>): Required<PlantOfClient> => plant;
const toService = (plant: Required<PlantOfClient>): Required<Plant> => plant;
const toCreate = (plant: Required<Plant>): Required<Omit<NewPlantOfClient, 'id'>> => plant;

describe('every field of a plant', () => {
  test('has a value in the full plant, and another in the other full plant', () => {
    assert.deepEqual(Object.keys(toService(toClient(FULL_FIELDS))), plantFields);
    assert.deepEqual(toCreate(FULL_FIELDS), FULL_FIELDS);
    for (const field of plantFields) assert.notEqual(FULL_PLANT[field], OTHER_FULL_PLANT[field], field);
  });

  for (const [name, format] of Object.entries(formats)) {
    test(`is read as it was written, as ${name}`, async () => {
      const plants = PARTIAL_PLANTS.map((plant, index) => ({ id: BigInt(index), ...plant }));
      const entries: Entry[] = [];
      const file = (async function* () {
        yield Buffer.from(format.header + format.write(plants));
      })();
      for await (const some of format.read(file)) entries.push(...some);
      assert.deepEqual(
        entries.map((entry) => ('plant' in entry ? entry.plant : entry)),
        plants,
      );
    });
  }

  test('changes the digest', () => {
    const digests = plantFields.map((field) =>
      Buffer.from(digestPlant({ ...FULL_PLANT, [field]: OTHER_FULL_PLANT[field] })).toString('hex'),
    );
    digests.push(Buffer.from(digestPlant(FULL_PLANT)).toString('hex'));
    assert.equal(new Set(digests).size, digests.length);
  });

  for (const engine of engines) {
    test(`is in a list, present or absent, as renderPlant has it, on ${engine.name}`, async (t) => {
      const url = await engine.freshUrl(t);
      const store = await openStore(url, { now: Date.now, onFatal: assert.ifError, connections });
      for (const [index, plant] of PARTIAL_PLANTS.entries()) await store.write(create(BigInt(index), plant));
      const { json } = await store.listPlants('alice', EVERY_ID, upTo(100));
      await store.close();
      assert.equal(json, `[${PARTIAL_PLANTS.map(renderPlant).join(',')}]`);
    });

    test(`is saved, replaced and read in bulk on ${engine.name}`, async (t) => {
      const url = await engine.freshUrl(t);
      const store = await openStore(url, { now: Date.now, onFatal: assert.ifError, connections });
      await store.close();
      const bulk = await openBulk(url, connections);
      t.after(() => bulk.close());
      for (const plant of [FULL_PLANT, OTHER_FULL_PLANT, { id: FULL_PLANT.id, name: 'Oak' }]) {
        const row = toPlantRow('alice', plant);
        await bulk.savePlants([row], 'replace');
        assert.deepEqual(await bulk.read(['plants'], (contents) => Array.fromAsync(contents.plants())), [
          [row],
        ]);
      }
    });

    test(`goes through the client, check, export and import on ${engine.name}`, async (t) => {
      const url = await engine.freshUrl(t);
      const service = await startService(t, url);
      const alice = createClient({ url: service.url, token: await service.token('alice') });
      assert.deepEqual((await alice.createPlant(FULL_PLANT)).plant, FULL_FIELDS);
      const installation = await newInstallation(t);
      const run = async (...args: string[]): Promise<string> => {
        const { code, stdout, stderr } = await installation.run(args, { env: { DATABASE_URL: url } });
        assert.equal(code, 0, stderr);
        return stdout;
      };
      assert.match(await run('check'), /^sound: 1 plant,/);
      const file = join(installation.folder, 'plants.csv');
      await run('export', 'alice', file);
      await run('import', 'bob', file);
      const bob = createClient({ url: service.url, token: await service.token('bob') });
      assert.deepEqual(await Array.fromAsync(bob.listPlants()), [FULL_FIELDS]);
    });
  }
});

// Keys are kept for 24 hours, so a digest must stay the same in the next version.
test('the digest of a plant is that of the first version while the plant has no newer field', () => {
  const hex = (tag: { tag?: string }): string =>
    Buffer.from(digestPlant(toPlantRow('alice', { id: 7n, name: 'Black alder', ...tag }))).toString('hex');
  assert.equal(
    hex({ tag: 'Alnus glutinosa' }),
    '930e9b710d22e30339bf8c8eca00248634319ca8abb00227ed27ebc70a4587d4',
  );
  assert.equal(hex({}), 'bf1735c8577e670c6156042ad19562c163824b0f6306d269379c1691565bea37');
});
