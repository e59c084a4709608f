import assert from 'node:assert/strict';
import { test } from 'node:test';
import { needsProgram } from '../support/needs.ts';
import {
  asPattern,
  blocks,
  README,
  runFirstRequests,
  runScript,
  section,
  startProgram,
  stop,
} from '../support/readme.ts';

test('README has the two commands', () => {
  const commands = blocks(README).map(({ text }) => text.trim());
  assert.ok(commands.includes('npm ci && npm start'));
  assert.ok(commands.includes('npm ci && npm test'));
});

test(
  'the first start prints the output in README, and its curl lines work unchanged',
  needsProgram('curl'),
  async (t) => {
    const { child, databaseUrl, printed } = await startProgram(t);
    const shown = blocks(section('Start')).find(({ language }) => language === 'text');
    assert.ok(shown !== undefined, 'README has the output');
    assert.match(printed, new RegExp(asPattern(shown.text)));

    const curls = printed.split('\n').filter((line) => line.trimStart().startsWith('curl '));
    const answers = await runScript(curls.map((curl) => `${curl} -s; echo`).join('\n'), databaseUrl);
    const plant = '{"name":"Black alder","tag":"Alnus glutinosa"}';
    assert.equal(answers, `${plant}\n[${plant}]\n\n`);

    await stop(child);
  },
);

test('the first requests in README give the documented output', needsProgram('curl'), (t) =>
  runFirstRequests(t, 1),
);
