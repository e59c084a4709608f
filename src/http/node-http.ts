/**
 * The module `node:http`, without `import`: that would read all its exports, and one of them loads the WebSocket
 * client, which takes a tenth of the start time.
 */
export const http = process.getBuiltinModule('node:http');
