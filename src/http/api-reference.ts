import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { ApiError } from '../api-errors.ts';
import { readPackagedFile } from '../packaged-files.ts';
import { responseOf } from './batched-response.ts';
import type { SendBufferLimit } from './send-buffer-limit.ts';
import { inPieces, PIECE_BYTES, sendPieces } from './streamed-response.ts';

/**
 * The gzipped script of Scalar, which renders the API reference. `npm ci` builds it (build/api-reference.ts).
 */
const SCRIPT_FILE = 'http/api-reference.js.gz';

/** Colors of texts with a contrast of 4.5:1 or more (WCAG 2). Those of Scalar have less. */
const COLORS = `
.light-mode{--scalar-color-2:#666;--scalar-color-3:#6b6b6b;--scalar-color-green:#00774b;--scalar-color-red:#d60000;
--scalar-color-blue:#006fb4;--scalar-color-orange:#b84000}
.dark-mode{--scalar-color-3:#8f8f8f;--scalar-color-red:#ff5a55}`;

/** Settings of Scalar. Features that would contact or advertise a third party are off. */
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
  customCss: COLORS,
  authentication: { preferredSecurityScheme: 'bearer' },
  defaultHttpClient: { targetKey: 'shell', clientKey: 'curl' },
};

const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><text y=".9em" font-size="90">🌱</text></svg>';

// All URLs in the page are relative, so that the page works under any path prefix of a proxy. The script sends its
// requests under the prefix too (build/api-reference.ts).
const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Plant Store API</title>
    <link rel="icon" href="data:image/svg+xml,${encodeURIComponent(ICON)}">
  </head>
  <body>
    <noscript>This page needs JavaScript. The same content is in <a href="openapi.json">openapi.json</a>.</noscript>
    <div id="api-reference" data-url="openapi.json" data-configuration="${escapeAttribute(JSON.stringify(CONFIGURATION))}"></div>
    <script src="docs/scalar.js"></script>
  </body>
</html>
`;

const PAGE_ETAG = etagOf(PAGE);

/**
 * Security headers: the page may load files only from this service, and no website may show it in a frame.
 */
const PAGE_HEADERS = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    // The Scalar script needs 'unsafe-inline': it adds `<style>` elements and `style` attributes.
    "style-src 'unsafe-inline'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join(';'),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-cache',
};

/** Serves the API reference: the page /docs, which renders /openapi.json, and the script of that page. */
export function addApiReference(scope: FastifyInstance, sendBufferLimit: SendBufferLimit): void {
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/docs',
    config: { operationId: 'docs' },
    handler: async ({ headers }, reply) => {
      checkPreconditions(headers, PAGE_ETAG);
      reply.headers({ ...PAGE_HEADERS, etag: PAGE_ETAG });
      if (isKnownBy(headers, PAGE_ETAG)) return reply.code(304).send();
      return reply.type('text/html; charset=utf-8').send(PAGE);
    },
  });
  let script: Script | undefined;
  scope.route({
    method: ['GET', 'HEAD'],
    url: '/docs/scalar.js',
    config: { operationId: 'docs' },
    // The script is always sent gzipped, whatever `Accept-Encoding` says. Every browser accepts gzip, and a
    // server may ignore `Accept-Encoding` (RFC 9110 §12.5.3).
    handler: async ({ headers, method }, reply) => {
      script ??= readScript();
      const { gzipped, etag } = script;
      checkPreconditions(headers, etag);
      const isKnown = isKnownBy(headers, etag);
      const hasBody = !isKnown && method !== 'HEAD';
      if (hasBody) sendBufferLimit.open(responseOf(reply), '').take(PIECE_BYTES);
      reply.headers({ ...PAGE_HEADERS, etag });
      if (isKnown) return reply.code(304).send();
      reply
        .type('text/javascript; charset=utf-8')
        .headers({ 'content-encoding': 'gzip', 'content-length': gzipped.length });
      if (!hasBody) return reply.send();
      // Sends the script in pieces. One large write would make TLS encrypt the whole script, even if the client
      // never reads it.
      await sendPieces(reply, inPieces(gzipped));
      return reply;
    },
  });
}

interface Script {
  readonly gzipped: Buffer;
  readonly etag: string;
}

function readScript(): Script {
  const gzipped = readPackagedFile(SCRIPT_FILE);
  return { gzipped, etag: etagOf(gzipped) };
}

function etagOf(content: string | Buffer): string {
  return `"${hash('sha256', content, 'base64url')}"`;
}

/** Throws an ApiError (41200) if `If-Match` does not match the ETag of a file (RFC 9110 §13.1.1). */
function checkPreconditions(headers: IncomingHttpHeaders, etag: string): void {
  const { 'if-match': ifMatch } = headers;
  if (ifMatch !== undefined && !isAny(ifMatch) && !tagsIn(ifMatch).includes(etag))
    throw new ApiError(41200, 'this file has another version than `If-Match` names; load the page again');
}

/** Returns true if `If-None-Match` has the ETag, also as a weak one, or is `*` (RFC 9110 §13.1.2). */
function isKnownBy({ 'if-none-match': field }: IncomingHttpHeaders, etag: string): boolean {
  return field !== undefined && (isAny(field) || tagsIn(field.replaceAll('W/', '')).includes(etag));
}

function isAny(field: string): boolean {
  return field.trim() === '*';
}

// ETags of the service have no comma.
function tagsIn(field: string): readonly string[] {
  return field.split(',').map((tag) => tag.trim());
}

function escapeAttribute(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
}
