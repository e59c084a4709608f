import { registerHooks } from 'node:module';

const GROUP_COMMIT = new URL('../../src/store/group-commit.ts', import.meta.url).href;
const WRAPPED = `${GROUP_COMMIT}?wrapped`;

// Loaded before the program, it puts each write into a batch of its own. All else is the program as it is.
registerHooks({
  load: (url, context, nextLoad) => {
    if (url !== GROUP_COMMIT) return nextLoad(url, context);
    const source = `
      import { createGroupCommit as create } from ${JSON.stringify(WRAPPED)};
      export const createGroupCommit = (options) => create({ ...options, maxBatch: 1 });`;
    return { format: 'module', source, shortCircuit: true };
  },
});
