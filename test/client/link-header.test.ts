import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createClient } from '../../client/src/client.ts';
import { nextTarget } from '../../client/src/link-header.ts';
import { serve } from '../support/servers/stub-server.ts';

const NEXT = '</plants?limit=1&cursor=abc>';

/** Headers with a next link to the cursor `abc`. */
const WITH_NEXT = [
  `${NEXT}; rel="next"`,
  `${NEXT}; rel=next`,
  `${NEXT};rel=next`,
  `${NEXT} ; REL = "NEXT"`,
  `${NEXT}; rel="prev next"`,
  `${NEXT}; title="a; b, c"; rel="next"`,
  `${NEXT}; title="say \\"next\\"; b"; rel="next"`,
  `${NEXT}; title=plain; crossorigin; rel=next`,
  `</style.css>; rel=preload; as=style, ${NEXT}; rel="next"`,
  `</?a=b,c;d>; title=", ${NEXT.replace('abc', 'wrong')}; rel=next", ${NEXT}; rel="next"`,
  `</plants?limit=1,2;3&cursor=abc>; rel="next"`,
  `without brackets, ${NEXT}; rel="next"`,
];

/** Headers without a next link. */
const WITHOUT_NEXT = [
  NEXT,
  `${NEXT}; rel="prev"`,
  `${NEXT}; rel=next-page`,
  `${NEXT}; rel="next-archive"`,
  `${NEXT}; rel="prev"; rel="next"`,
  `${NEXT}; title="; rel=next"`,
  `${NEXT}; title=";\\"; rel=next"; rel=prev`,
  `${NEXT}, </style.css>; rel=preload`,
  `${NEXT}; title=rel=next`,
];

describe('the Link header of a page', () => {
  for (const [links, paths] of [
    [WITH_NEXT, ['/plants?limit=1', '/plants?limit=1&cursor=abc']],
    [WITHOUT_NEXT, ['/plants?limit=1']],
  ] as const) {
    for (const link of links) {
      test(`${link} → ${paths.length} pages`, async (t) => {
        const requested: unknown[] = [];
        const url = await serve(t, (request, response) => {
          requested.push(request.url);
          if (requested.length === 1) response.setHeader('link', link);
          response.end('[{"name":"Fern"}]');
        });
        const list = createClient({ url, token: 'secret' }).listPlants({ pageSize: 1 });
        assert.equal((await Array.fromAsync(list)).length, paths.length);
        assert.deepEqual(requested, paths);
      });
    }
  }
});

describe('a Link header of 1 MiB', () => {
  for (const part of ['<', '<>', '<>"', '<>\\"', '<>;"\\', '<>; ', '<>;a=', '<>;a="\\"', ',', '"', ' ;']) {
    test(`that repeats ${part} → read in linear time`, () => {
      const repeated = part.repeat(2 ** 20 / part.length);
      for (const header of [repeated, `<>;${repeated}`, `<>; rel="${repeated}`]) {
        const start = performance.now();
        assert.equal(nextTarget(header), undefined);
        const ms = performance.now() - start;
        assert.ok(ms < 2_000, `${ms} ms`);
      }
    });
  }
});
