import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createClient } from '../../client/src/client.ts';
import { engines } from '../support/engines.ts';
import { serve } from '../support/servers/stub-server.ts';
import { startService } from '../support/service.ts';

for (const engine of engines) {
  describe(`the results of the client on ${engine.name}`, () => {
    test('a list by pages → each page has the cursor of the next, which continues the list later', async (t) => {
      const service = await startService(t, await engine.freshUrl(t), { basePath: '/v1' });
      const token = await service.token();
      const client = createClient({ url: service.url, token });
      for (const id of [1, 2, 3, 4, 5]) await client.createPlant({ id, name: `${id}` });
      const cursors: (string | undefined)[] = [];
      const pages: string[] = [];
      for await (const { plants, cursor, status, requestId, headers } of client
        .listPlants({ pageSize: 2 })
        .pages()) {
        pages.push(plants.map(({ name }) => name).join());
        cursors.push(cursor);
        assert.equal(status, 200);
        assert.equal(requestId, headers.get('x-request-id'));
      }
      assert.deepEqual(pages, ['1,2', '3,4', '5']);
      assert.equal(cursors[2], undefined);

      const later = createClient({ url: service.url, token });
      await later.deletePlant(3);
      for (const [index, expected] of [['4,5'], ['5']].entries()) {
        const rest = await Array.fromAsync(later.listPlants({ pageSize: 2, cursor: cursors[index] }));
        assert.equal(rest.map(({ name }) => name).join(), expected[0]);
      }
      const wrong = later.listPlants({ cursor: 'made up & wrong' });
      await assert.rejects(Array.fromAsync(wrong), { code: 40000, message: /`cursor`/ });
      await service.close();
    });

    test('a list → each iteration starts again', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const list = client.listPlants();
      assert.deepEqual(await Array.fromAsync(list), []);
      await client.createPlant({ id: 7, name: 'Fern' });
      assert.deepEqual(await Array.fromAsync(list), [{ name: 'Fern' }]);
      await service.close();
    });

    for (const aborted of [1, 5]) {
      test(`a list aborted after plant ${aborted} of 5 in a page → rejects with the reason`, async (t) => {
        const service = await startService(t, await engine.freshUrl(t));
        const client = createClient({ url: service.url, token: await service.token() });
        for (const id of [1, 2, 3, 4, 5]) await client.createPlant({ id, name: `${id}` });
        const reason = new Error('stop');
        const controller = new AbortController();
        const names: string[] = [];
        const read = async (): Promise<void> => {
          for await (const { name } of client.listPlants({ signal: controller.signal })) {
            names.push(name);
            if (names.length === aborted) controller.abort(reason);
          }
        };
        await assert.rejects(read(), reason);
        assert.equal(names.length, aborted);
        await service.close();
      });
    }

    test('the last page of a list aborted → rejects with the reason', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const reason = new Error('stop');
      const controller = new AbortController();
      const pages = client.listPlants({ signal: controller.signal }).pages();
      assert.deepEqual((await pages.next()).value?.plants, []);
      controller.abort(reason);
      await assert.rejects(pages.next(), reason);
      await service.close();
    });

    test('a creation → says whether it was replayed, and gives the id of its log line', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const options = { idempotencyKey: 'order-1' };
      const first = await client.createPlant({ id: 7, name: 'Fern' }, options);
      const second = await client.createPlant({ id: 7, name: 'Fern' }, options);
      const deleted = await client.deletePlant(7);
      assert.deepEqual([first.replayed, second.replayed, deleted.status], [false, true, 204]);
      assert.deepEqual([first.plant, second.plant], [{ name: 'Fern' }, { name: 'Fern' }]);
      await service.close();
      const logged = service.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'answered');
      assert.deepEqual(
        logged.map(({ requestId }) => requestId),
        [first, second, deleted].map(({ requestId }) => requestId),
      );
      assert.equal(first.headers.get('cache-control'), 'no-store');
    });

    test('an error → has the code, the headers and the id of its log line', async (t) => {
      const service = await startService(t, await engine.freshUrl(t));
      const client = createClient({ url: service.url, token: await service.token() });
      const failure: unknown = await client.deletePlant(7).catch((error: unknown) => error);
      await service.close();
      const { requestId } = JSON.parse(service.logLines.find((line) => line.includes('"answered"')) ?? '{}');
      const [code, id] = [Reflect.get(Object(failure), 'code'), Reflect.get(Object(failure), 'requestId')];
      assert.deepEqual([code, id], [40400, requestId]);
      assert.equal(Reflect.get(Object(failure), 'headers').get('cache-control'), 'no-store');
    });
  });
}

for (const body of ['', '[]', '<html></html>']) {
  test(`200 with the body "${body}" to a deletion → rejected: nothing was deleted`, async (t) => {
    const url = await serve(t, (_request, response) => response.end(body));
    const client = createClient({ url, token: 'secret' });
    await assert.rejects(client.deletePlant(1), /is not that of a Plant Store/);
  });
}

test('the same page to each request, as from a cache that ignores the query → rejected, not read for ever', async (t) => {
  const link = '</plants?limit=1000&cursor=abc>; rel="next"';
  const url = await serve(t, (_request, response) =>
    response.setHeader('link', link).end('[{"name":"Fern"}]'),
  );
  const client = createClient({ url, token: 'secret' });
  const names: string[] = [];
  const read = async (): Promise<void> => {
    for await (const { name } of client.listPlants()) names.push(name);
  };
  await assert.rejects(read(), /is not that of a Plant Store: its Link makes no progress/);
  assert.deepEqual(names, ['Fern']);
});

test('pages without plants, each with another cursor → rejected, not read for ever', async (t) => {
  let cursor = 0;
  const url = await serve(t, (_request, response) => {
    cursor += 1;
    response.setHeader('link', `</plants?cursor=${cursor}>; rel="next"`).end('[]');
  });
  const plants = createClient({ url, token: 'secret' }).listPlants()[Symbol.asyncIterator]();
  await assert.rejects(plants.next(), /is not that of a Plant Store: its Link makes no progress/);
  assert.equal(cursor, 1);
});

test('return() of a list while a page is loading → ends with the page, at once if the signal is aborted', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const url = await serve(t, () => arrived.resolve());
  const controller = new AbortController();
  const client = createClient({ url, token: 'secret' });
  const plants = client.listPlants({ signal: controller.signal })[Symbol.asyncIterator]();
  const next = assert.rejects(plants.next(), { name: 'AbortError' });
  await arrived.promise;
  const end = plants.return();
  controller.abort();
  await next;
  assert.deepEqual(await end, { value: undefined, done: true });
});

for (const link of ['<http://[>; rel="next"', '</plants?limit=1>; rel="next"']) {
  test(`a next link without a cursor: ${link} → rejected, as the rest would be missing`, async (t) => {
    const url = await serve(t, (_request, response) => response.setHeader('link', link).end('[]'));
    const client = createClient({ url, token: 'secret' });
    await assert.rejects(
      Array.fromAsync(client.listPlants()),
      /is not that of a Plant Store: its Link header has no cursor/,
    );
  });
}
