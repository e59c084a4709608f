/**
 * The values of `node:http`. An `import` of any of them would ask the module for all, and one of those loads the client
 * for WebSockets: a tenth of a start.
 */
export const http = process.getBuiltinModule('node:http');
