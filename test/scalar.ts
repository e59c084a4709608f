import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import scalar from '@scalar/fastify-api-reference';
import Fastify from 'fastify';

// Zod, inside the script, tries whether it may compile code; the page's Content-Security-Policy forbids that, and would report it.
const PREAMBLE = 'globalThis.__zod_globalConfig={jitless:true};\n';

/** A file of ours that is a copy of one of Scalar's. */
export interface Copy {
  /** Where it is kept, gzipped when the name says so. */
  readonly file: URL;
  /** What the installed package has. */
  readonly original: Buffer;
}

/** What the service has of Scalar, beside what the installed package has: the package embeds its script, and serves it. */
export async function readCopies(): Promise<readonly Copy[]> {
  const server = Fastify();
  await server.register(scalar, { routePrefix: '/reference', configuration: { url: '/openapi.json' } });
  const { statusCode, rawPayload } = await server.inject('/reference/js/scalar.js');
  await server.close();
  if (statusCode !== 200) throw new Error(`the package does not serve its script, but ${statusCode}`);
  const main = createRequire(import.meta.url).resolve('@scalar/fastify-api-reference');
  const folder = new URL('../src/http/scalar/', import.meta.url);
  return [
    {
      file: new URL('standalone.js.gz', folder),
      original: Buffer.concat([Buffer.from(PREAMBLE), rawPayload]),
    },
    { file: new URL('LICENSE', folder), original: await readFile(join(dirname(main), '..', 'LICENSE')) },
  ];
}

if (import.meta.main) {
  for (const { file, original } of await readCopies()) {
    await writeFile(file, file.pathname.endsWith('.gz') ? gzipSync(original, { level: 9 }) : original);
  }
}
