import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { factTables } from '../../build/fact-tables.ts';
import { cellsOf, type FactTable, renderTable } from '../../build/markdown-table.ts';

const ROOT = join(import.meta.dirname, '../..');

describe('tables that repeat facts of the code', async () => {
  for (const table of await factTables()) {
    const page = readFileSync(join(ROOT, table.file), 'utf8');

    test(`${table.file}, ${table.name}: current`, () => {
      assert.ok(table.rows.length > 0);
      assert.equal(renderTable(page, table), page, 'run `npm run renew:tables`');
    });

    test(`${table.file}, ${table.name}: every row is explained`, () => {
      const [, text = ''] = page.split(`<!-- table of ${table.name} -->\n\n`);
      const rows = text.split('\n\n', 1)[0]?.split('\n').map(cellsOf) ?? [];
      for (const cells of rows) assert.notEqual(cells.at(-1), '', cells.join(' | '));
    });
  }
});

describe('renderTable', () => {
  const table: FactTable = {
    file: 'page.md',
    name: 'trees',
    head: ['Name', 'Height', 'Means'],
    rows: [
      ['alder', '20'],
      ['fern', ''],
    ],
    key: 1,
  };
  const rest = '\nThe rest.\n\n| Other |\n| --- |\n';
  const before = '# Trees\n\n<!-- table of trees -->\n\n';

  test('facts are replaced, texts stay with their row, old rows go, new rows come without a text', () => {
    const old =
      '| Name | Height | Means |\n| --- | --- | --- |\n| elm | 30 | Gone. |\n| alder | 1 | Black. |\n';
    const renewed = '| Name | Height | Means |\n| --- | --- | --- |\n| alder | 20 | Black. |\n| fern | | |\n';
    assert.equal(renderTable(before + old + rest, table), before + renewed + rest);
    assert.equal(renderTable(before + renewed + rest, table), before + renewed + rest);
  });

  test('the comment is missing, or there twice → error with its name', () => {
    for (const page of ['', before + before])
      assert.throws(() => renderTable(page, table), /<!-- table of trees -->/);
  });
});
