import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escapeColouredLines, escapeLine, escapeLines } from '../src/terminal-text.ts';

const RED = '\u001b[31m';
const CLEAR = '\u001b[2J';

for (const [render, expected] of [
  [escapeLine, '\\u001b[31mÄ\\n\\u001b[2J\\u009b0m\\u202e'],
  [escapeLines, '\\u001b[31mÄ\n\\u001b[2J\\u009b0m\\u202e'],
  [escapeColouredLines, `${RED}Ä\n\\u001b[2J\\u009b0m\\u202e`],
] as const)
  test(`${render.name} → escapes what controls a terminal, except what it promises to keep`, () => {
    assert.equal(render(`${RED}Ä\n${CLEAR}\u009b0m\u202e`), expected);
  });
