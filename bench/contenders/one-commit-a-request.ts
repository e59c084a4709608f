import { registerHooks } from 'node:module';

const GROUP_COMMIT = new URL('../../src/store/group-commit.ts', import.meta.url).href;
const WRAPPED = `${GROUP_COMMIT}?wrapped`;

// The service preloads this module, which commits each write in a separate batch. Nothing else changes.
registerHooks({
  load: (url, context, nextLoad) => {
    if (url !== GROUP_COMMIT) return nextLoad(url, context);
    const source = `
      import { createGroupCommit as create } from ${JSON.stringify(WRAPPED)};
      export const createGroupCommit = (options) => create({ ...options, maxBatch: 1 });`;
    return { format: 'module', source, shortCircuit: true };
  },
});
