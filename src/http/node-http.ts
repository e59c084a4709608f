/**
 * The module `node:http`, loaded without `import`. An `import` would read all exports of the module. Reading
 * one of these exports loads the WebSocket client, which takes a tenth of the start time.
 */
export const http = process.getBuiltinModule('node:http');
