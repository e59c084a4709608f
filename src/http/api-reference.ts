import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import helmet from '@fastify/helmet';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** Scalar's page in one script, gzipped; `npm ci` makes it from the package (build/api-reference.ts). */
const SCRIPT_FILE = new URL('./api-reference.js.gz', import.meta.url);

/** Everything that would ask another host, or advertise one, is off. */
const CONFIGURATION = {
  telemetry: false,
  withDefaultFonts: false,
  proxyUrl: '',
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: 'never',
  documentDownloadType: 'none',
  persistAuth: false,
  authentication: { preferredSecurityScheme: 'bearer' },
  defaultHttpClient: { targetKey: 'shell', clientKey: 'curl' },
};

const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><text y=".9em" font-size="90">🌱</text></svg>';

// Addresses are relative, so that the page works wherever a proxy puts it.
const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Plant Store API</title>
    <link rel="icon" href="data:image/svg+xml,${encodeURIComponent(ICON)}">
  </head>
  <body>
    <noscript>This page needs JavaScript. The same is in <a href="openapi.json">openapi.json</a>.</noscript>
    <div id="api-reference" data-url="openapi.json" data-configuration="${escapeAttribute(JSON.stringify(CONFIGURATION))}"></div>
    <script src="docs/scalar.js"></script>
  </body>
</html>
`;

/** Serves the API reference: a page at /docs that renders /openapi.json, and its script. */
export async function addApiReference(scope: FastifyInstance): Promise<void> {
  await scope.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        // Scalar puts its styles into the page, as elements and as attributes.
        styleSrc: ["'unsafe-inline'"],
        imgSrc: ["'self'", 'data:'],
        connectSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'none'"],
        frameAncestors: ["'none'"],
      },
    },
    // A promise for the whole host, which is the operator's to make.
    strictTransportSecurity: false,
  });
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/docs',
    config: { operationId: 'docs' },
    handler: async (_request, reply) =>
      reply.type('text/html; charset=utf-8').header('cache-control', 'no-cache').send(PAGE),
  });
  const script = keep(readScript);
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/docs/scalar.js',
    config: { operationId: 'docs' },
    handler: async (request, reply) => sendScript(request, reply, await script()),
  });
}

interface Script {
  readonly gzipped: Buffer;
  readonly etag: string;
}

async function readScript(): Promise<Script> {
  const gzipped = await readFile(SCRIPT_FILE);
  return { gzipped, etag: `"${createHash('sha256').update(gzipped).digest('base64url')}"` };
}

/** What `make` gives, made when first asked for; made anew after a failure. */
function keep<T>(make: () => Promise<T>): () => Promise<T> {
  let kept: Promise<T> | undefined;
  return () => {
    kept ??= make().catch((error: unknown) => {
      kept = undefined;
      throw error;
    });
    return kept;
  };
}

// Gzipped for whoever asks: every browser takes it, and RFC 9110 §12.5.3 lets a server have one form alone.
function sendScript(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { gzipped, etag }: Script,
): FastifyReply {
  reply.headers({ etag, 'cache-control': 'no-cache' });
  if (headers['if-none-match']?.includes(etag)) return reply.code(304).send();
  return reply.type('text/javascript; charset=utf-8').header('content-encoding', 'gzip').send(gzipped);
}

function escapeAttribute(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
}
