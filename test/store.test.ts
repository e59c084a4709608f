import { engines } from './engines.ts';
import { describeStore } from './store-suite.ts';

for (const engine of engines) describeStore(engine);
