/**
 * The module `node:http`, without `import`. An import reads all exports, and one of them loads the WebSocket client,
 * which takes a tenth of the start time.
 */
export const http = process.getBuiltinModule('node:http');
