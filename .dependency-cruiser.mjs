/** The import rules of ARCHITECTURE.md. Type imports count like any other, unless a rule says otherwise. `npm run check` runs them. */

const forbid = (name, comment, from, to) => ({ name, comment, severity: 'error', from, to });

/** A package or a built-in module that one part of the sources keeps to itself. */
const keep = (name, module, home) =>
  forbid(
    `only-${name}`,
    `Only ${home} imports ${module}.`,
    { path: '^src/', pathNot: home },
    { path: module },
  );

// biome-ignore lint/style/noDefaultExport: dependency-cruiser reads its rules from the default export.
export default {
  forbidden: [
    forbid(
      'no-circles',
      'Files do not import each other in a circle, types included.',
      {},
      { circular: true },
    ),
    forbid('resolvable', 'Every import is a file or a package that exists.', {}, { couldNotResolve: true }),
    forbid(
      'declared',
      'Every package that src imports is a dependency, not only a development one.',
      { path: '^src/' },
      { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown', 'undetermined'] },
    ),
    forbid(
      'src-alone',
      'src imports no test, benchmark or build script, nor the client.',
      { path: '^src/' },
      { path: '^(?:client|test|bench|build|deploy|examples)/' },
    ),
    forbid(
      'domain-alone',
      'The domain imports nothing of src but schemas.',
      { path: '^src/(?:schema|plant|token|api-errors|thrown-errors|database-url)\\.ts$' },
      { path: '^src/', pathNot: '^src/schema\\.ts$' },
    ),
    forbid(
      'root-first',
      'The files at the root of src import no folder. Only server.ts wires.',
      { path: '^src/[^/]+\\.ts$', pathNot: '^src/server\\.ts$' },
      { path: '^src/[^/]+/' },
    ),
    forbid(
      'server-last',
      'Only the commands import server.ts and config.ts.',
      { path: '^src/', pathNot: '^src/(?:server\\.ts$|cli/)' },
      { path: '^src/(?:server|config)\\.ts$' },
    ),
    forbid(
      'cli-last',
      'Only the command line imports the command line.',
      { path: '^src/', pathNot: '^src/cli/' },
      { path: '^src/cli/' },
    ),
    forbid(
      'commands-apart',
      'Commands do not import each other; program.ts loads the one that is asked for.',
      { path: '^src/cli/', pathNot: '^src/cli/program\\.ts$' },
      { path: '^src/cli/commands/' },
    ),
    forbid(
      'store-interfaces',
      'The interfaces of the store know only plants, tokens and errors.',
      { path: '^src/store/(?:store|bulk-store)\\.ts$' },
      { path: '^src/', pathNot: '^src/(?:plant|token|thrown-errors)\\.ts$' },
    ),
    forbid(
      'store-below',
      'The store knows neither HTTP nor the command line nor the log.',
      { path: '^src/store/' },
      { path: '^src/(?:http|formats|observability)/' },
    ),
    forbid(
      'engines-apart',
      'The engines do not import each other.',
      { path: '^src/store/(sqlite|postgres)/' },
      { path: '^src/store/(?:sqlite|postgres)/', pathNot: '^src/store/$1/' },
    ),
    forbid(
      'engines-behind-open',
      'Only open-engine.ts imports an engine.',
      { path: '^src/', pathNot: '^src/store/(?:open-engine\\.ts$|sqlite/|postgres/)' },
      { path: '^src/store/(?:sqlite|postgres)/' },
    ),
    forbid(
      'engines-opened-from-outside',
      'An engine does not import what opens it.',
      { path: '^src/store/(?:sqlite|postgres)/' },
      { path: '^src/store/(?:open-engine|group-commit)\\.ts$' },
    ),
    forbid(
      'http-sees-the-interface',
      'HTTP sees the store through store.ts alone.',
      { path: '^src/http/' },
      { path: '^src/store/', pathNot: '^src/store/store\\.ts$' },
    ),
    forbid(
      'http-folders-apart',
      'The folders of http/ do not import each other; http-app.ts, app.ts and admin.ts wire them.',
      { path: '^src/http/([^/]+)/' },
      { path: '^src/http/[^/]+/', pathNot: '^src/http/$1/' },
    ),
    forbid(
      'http-shared-below',
      'What the folders of http/ share imports none of them.',
      { path: '^src/http/[^/]+\\.ts$', pathNot: '^src/http/(?:app|admin|http-app)\\.ts$' },
      { path: '^src/http/[^/]+/' },
    ),
    forbid(
      'http-wiring-last',
      'Only server.ts and the commands import app.ts and admin.ts, which alone import http-app.ts.',
      { path: '^src/', pathNot: '^src/(?:server\\.ts$|cli/|http/(?:app|admin)\\.ts$)' },
      { path: '^src/http/(?:app|admin|http-app)\\.ts$' },
    ),
    forbid(
      'http-gets-the-log',
      'HTTP gets logs, traces and metrics from server.ts, and imports their types alone.',
      { path: '^src/http/' },
      { path: '^src/observability/', dependencyTypesNot: ['type-only'] },
    ),
    forbid('http-apart', 'HTTP knows no file format.', { path: '^src/http/' }, { path: '^src/formats/' }),
    forbid(
      'observability-below',
      'Logs, traces and metrics know the domain and the types of the store.',
      { path: '^src/observability/' },
      { path: '^src/[^/]+/', pathNot: '^src/(?:observability/|store/store\\.ts$)' },
    ),
    forbid(
      'formats-below',
      'File formats know the domain alone.',
      { path: '^src/formats/' },
      { path: '^src/(?!formats/)[^/]+/' },
    ),
    forbid(
      'client-alone',
      'The client imports nothing but its own files.',
      { path: '^client/' },
      { path: '.', pathNot: '^client/' },
    ),
    forbid(
      'test-support-below',
      'Test helpers import no test and no long-running program.',
      { path: '^test/support/' },
      { path: '^test/', pathNot: '^test/support/' },
    ),
    keep('sqlite', '^(?:node:)?sqlite$', '^src/store/sqlite/'),
    keep('pg', '^node_modules/(?:pg|pg-protocol)/|^pg-protocol', '^src/store/postgres/'),
    keep('node-http', '^(?:node:)?https?$', '^src/http/'),
    keep('fastify', '^node_modules/fastify/', '^src/(?:http/|server\\.ts$|observability/tracing\\.ts$)'),
    keep('opentelemetry', '^node_modules/@opentelemetry/', '^src/observability/tracing\\.ts$'),
    keep(
      'prom-client',
      '^node_modules/prom-client/',
      '^src/(?:observability/(?:(?:process|request|scraped)-)?metrics\\.ts|observability/prom-client\\.d\\.ts|http/admin\\.ts)$',
    ),
    keep('commander', '^node_modules/commander/', '^src/cli/'),
    keep('cli-progress', '^node_modules/cli-progress/', '^src/cli/progress\\.ts$'),
    keep('csv', '^node_modules/csv-', '^src/formats/csv\\.ts$'),
    keep('pino', '^node_modules/pino', '^src/observability/log\\.ts$'),
  ],
  options: {
    // TypeScript 7 has no parser for other programs. swc finds type imports too.
    parser: 'swc',
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^bench/contenders/alternatives/' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'types', 'default'],
    },
  },
};
