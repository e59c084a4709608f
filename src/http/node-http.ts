/**
 * The module `node:http`, loaded without `import`. An import would read all its exports. One of them loads
 * the WebSocket client, which takes a tenth of the start time.
 */
export const http = process.getBuiltinModule('node:http');
