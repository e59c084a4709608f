import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import scalar from '@scalar/fastify-api-reference';
import Fastify from 'fastify';

/** Makes the script of the page /docs, gzipped, from Scalar's package, which is not needed to run. */

const TO = new URL('../src/http/api-reference.js.gz', import.meta.url);

// Zod, inside the script, tries whether it may compile code; the page's Content-Security-Policy forbids that, and would report it.
const PREAMBLE = 'globalThis.__zod_globalConfig={jitless:true};\n';

/** The package has the script inside another, and serves it. */
async function readScript(): Promise<string> {
  const server = Fastify();
  await server.register(scalar, { routePrefix: '/reference', configuration: { url: '/openapi.json' } });
  const { statusCode, body } = await server.inject('/reference/js/scalar.js');
  await server.close();
  if (statusCode !== 200) throw new Error(`the package does not serve its script, but ${statusCode}`);
  return body;
}

async function readLicence(): Promise<string> {
  const main = fileURLToPath(import.meta.resolve('@scalar/fastify-api-reference'));
  return readFile(join(dirname(main), '..', 'LICENSE'), 'utf8');
}

const script = `/*!\n${await readLicence()}*/\n${PREAMBLE}${await readScript()}`;
await writeFile(TO, gzipSync(script, { level: 9 }));
