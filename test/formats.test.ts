import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { formats } from '../src/cli/plant-file.ts';
import { csv, MAX_CELLS } from '../src/formats/csv.ts';
import { type Entry, FileInvalid, MAX_LINE_BYTES } from '../src/formats/format.ts';
import { ndjson } from '../src/formats/ndjson.ts';
import { hostilePlants } from './support/data/hostile-plants.ts';
import { MEBIBYTE } from './support/process-resources.ts';
import { inChunks, outline, read } from './support/read-plants.ts';
import { repetitions } from './support/repetitions.ts';

for (const [name, format] of Object.entries(formats)) {
  describe(`every format: ${name}`, () => {
    test('hostile plants are read as they were written, however the file is cut into chunks', async () => {
      for (const [count, chunk] of [
        [100, 1],
        [500, 7],
        [5_000, 4_096],
        [5_000, 1_000_000],
      ] as const) {
        const plants = hostilePlants(repetitions(count));
        const bytes = Buffer.from(format.header + format.write(plants));
        const entries = await read(format, bytes, chunk);
        assert.deepEqual(
          entries.map((entry) => ('plant' in entry ? entry.plant : entry)),
          plants,
        );
      }
    });

    test('line numbers are those of the file', async () => {
      const plants = hostilePlants(500, 7);
      const text = format.header + format.write(plants);
      const lines = text.split('\n');
      for (const entry of await read(format, text, 1_000)) {
        assert.ok('plant' in entry);
        assert.ok(lines[entry.line - 1]?.includes(String(entry.plant.id)), `line ${entry.line}`);
      }
    });

    test('a byte order mark, CRLF and a missing last line end have no effect', async () => {
      const text =
        format.header +
        format.write([
          { id: 1n, name: 'one' },
          { id: 2n, name: 'two', tag: '' },
        ]);
      const same = await read(format, text);
      for (const other of [`\ufeff${text}`, text.replaceAll('\n', '\r\n'), text.trimEnd(), `${text}\n\n`]) {
        for (const chunk of [1, 1_000]) assert.deepEqual(await read(format, other, chunk), same);
      }
    });
  });
}

describe('NDJSON', () => {
  test('writes one plant per line, id first, without an absent tag', () => {
    const text = ndjson.write([
      { id: 1n, name: 'a' },
      { id: -2n, name: 'b', tag: '' },
    ]);
    assert.equal(text, '{"id":1,"name":"a"}\n{"id":-2,"name":"b","tag":""}\n');
  });

  test('an id is exact in every form of a JSON number, as in a request', async () => {
    const lines = '{"id":9007199254740993,"name":"a"}\n{"id":7.0,"name":"b"}\n{"id":7e1,"name":"c"}\n';
    const ids = (await read(ndjson, lines)).map((entry) => 'plant' in entry && entry.plant.id);
    assert.deepEqual(ids, [9_007_199_254_740_993n, 7n, 70n]);
  });

  test('an invalid line does not affect others; its reason is worded as for a request', async () => {
    const lines = [
      '{"id":1,"name":"good"}',
      '{"id":1,"name":',
      '',
      '[]',
      '{"name":"x"}',
      '{"id":"7","name":"x"}',
      '{"id":9223372036854775808,"name":"x"}',
      '{"id":7,"name":"x","tag":null}',
      '{"id":7,"name":"\\u0000"}',
      '{"id":8,"name":"good too","colour":"green"}',
    ];
    const outlined = await outline(ndjson, lines.join('\n'), 10);
    assert.equal(
      outlined[1],
      '2: the line is not JSON: expected a value at character 16, where the text ends',
    );
    assert.deepEqual(outlined.toSpliced(1, 1), [
      '1: good',
      '4: the line must be a JSON object',
      '5: the field `id` is required',
      '6: the field `id` must be an integer from -9223372036854775808 to 9223372036854775807, not a string',
      '7: the field `id` must be an integer from -9223372036854775808 to 9223372036854775807',
      '8: the field `tag` must be a string without U+0000 and lone surrogates',
      '9: the field `name` must be a string without U+0000 and lone surrogates',
      '10: good too',
    ]);
  });

  test('a file of one or two bytes, shorter than a byte order mark → its line is reported', async () => {
    for (const text of ['x', '1', '{}', '"'])
      for (const chunk of [1, 2]) {
        const entries = await read(ndjson, text, chunk);
        assert.deepEqual(entries, await read(ndjson, `${text}\n\n`));
        assert.equal(entries.length, 1, text);
      }
  });

  test('a JSON array → the error says so, and nothing is read', async () => {
    const lines = '[\n{"id":1,"name":"a"},\n{"id":2,"name":"b"}\n]\n';
    for (const text of [lines, lines.replaceAll('\n', ''), `\ufeff${lines}`, ` \t\r\n\n${lines}`, '[]'])
      for (const chunk of [1, 1_000])
        await assert.rejects(
          async () => {
            for await (const entries of ndjson.read(inChunks(Buffer.from(text), chunk)))
              assert.deepEqual(entries, []);
          },
          (error: unknown) =>
            error instanceof FileInvalid && /JSON array.*jq 1\.7 or newer/.test(error.message),
        );
  });

  test('unknown fields → a warning for each of the first five, shortened', async () => {
    const line = (id: number, field: string): string => `{"id":${id},"name":"Alder","${field}":"x"}\n`;
    const text = ['tag', 'tags', 'tag', 'Tag', 'tags', '🌱'.repeat(41), '🌱'.repeat(40), 'e', 'f', 'g']
      .map((field, id) => line(id, field))
      .join('');
    for (const chunk of [1, 1_000]) {
      const warnings: string[] = [];
      const chunks = inChunks(Buffer.from(text), chunk);
      for await (const _ of ndjson.read(chunks, (warning) => warnings.push(warning)));
      assert.deepEqual(warnings, [
        'line 2: ignored the field `tags`; known are id, name, tag',
        'line 4: ignored the field `Tag`; known are id, name, tag',
        `line 6: ignored the field \`${'🌱'.repeat(40)}…\`; known are id, name, tag`,
        `line 7: ignored the field \`${'🌱'.repeat(40)}\`; known are id, name, tag`,
        'line 8: ignored the field `e`; known are id, name, tag',
      ]);
    }
  });

  test('a line without an end → reported as soon as it is too long, and the import ends', async () => {
    const chunk = Buffer.alloc(1024 * 1024);
    let sent = 0;
    async function* endless(): AsyncGenerator<Buffer> {
      for (;;) {
        sent += chunk.length;
        yield chunk;
      }
    }
    const reported: { entry: Entry; sent: number }[] = [];
    await assert.rejects(
      async () => {
        for await (const entries of ndjson.read(endless()))
          reported.push(...entries.map((entry) => ({ entry, sent })));
      },
      new FileInvalid(`line 1 does not end within ${8 * MAX_LINE_BYTES} bytes; is the file NDJSON?`),
    );
    const reason = `the line is longer than ${MAX_LINE_BYTES} bytes`;
    assert.deepEqual(reported, [{ entry: { line: 1, reason }, sent: MAX_LINE_BYTES + chunk.length }]);
    assert.equal(sent, 8 * MAX_LINE_BYTES + chunk.length);
  });

  test('a line that is not UTF-8, or too long, is invalid', async () => {
    const long = Buffer.alloc(MAX_LINE_BYTES + 1, 'x');
    const broken = Buffer.from([0x22, 0xff, 0x22, 0x0a]);
    // Reported before its end is read.
    const longer = Buffer.alloc(MAX_LINE_BYTES + 200_000, 'x');
    const good = Buffer.from('{"id":1,"name":"good"}\n');
    const end = Buffer.from('\n');
    const content = Buffer.concat([broken, long, end, good, longer, end, good, good, long]);
    const tooLong = `the line is longer than ${MAX_LINE_BYTES} bytes`;
    assert.deepEqual(await outline(ndjson, content), [
      '1: the line is not UTF-8',
      `2: ${tooLong}`,
      '3: good',
      `4: ${tooLong}`,
      '5: good',
      '6: good',
      `7: ${tooLong}`,
    ]);
  });
});

describe('CSV', () => {
  test('quotes where necessary, and empty texts, but not absent tags', () => {
    const plants = [
      { id: 1n, name: 'a' },
      { id: 2n, name: '', tag: '' },
      { id: 3n, name: 'say "hi", \nor', tag: '=1+1' },
    ];
    assert.equal(csv.write(plants), '1,a,\n2,"",""\n3,"say ""hi"", \nor",=1+1\n');
  });

  // Files stay the same in all versions, as upgrading.md promises.
  test('does not quote a tab or spaces', () => {
    const plants = [{ id: 1n, name: 'tab\there', tag: ' two ' }];
    assert.equal(csv.write(plants), '1,tab\there, two \n');
  });

  test('columns may be in any order, others are ignored, and the tag may be missing', async () => {
    const text = 'colour,name,id\ngreen,Alder,1\n,Elm,2\n';
    assert.deepEqual(await read(csv, text), [
      { line: 2, plant: { id: 1n, name: 'Alder' } },
      { line: 3, plant: { id: 2n, name: 'Elm' } },
    ]);
  });

  test('unknown columns → one warning names the first ones, shortened', async () => {
    for (const [header, expected] of [
      ['id,name', []],
      ['id,name,tag', []],
      ['tags,id,name', ['ignored the column `tags`; known are id, name, tag']],
      ['id,name,Größe,,', ['ignored the column `Größe`; known are id, name, tag']],
      [
        `id,name,${'🌱'.repeat(41)},a,b,c,d,e,f`,
        [
          `ignored the columns \`${'🌱'.repeat(40)}…\`, \`a\`, \`b\`, \`c\`, \`d\` and 2 more; known are id, name, tag`,
        ],
      ],
    ] as const)
      for (const chunk of [1, 1_000]) {
        const warnings: string[] = [];
        for await (const _ of csv.read(inChunks(Buffer.from(`${header}\n`), chunk), (text) =>
          warnings.push(text),
        ));
        assert.deepEqual(warnings, expected);
      }
  });

  test('an invalid line does not affect others; its number is that in the file', async () => {
    const lines = [
      'id,name,tag',
      '1,"two\r\nlines",',
      '',
      '2,too few',
      '1.5,fraction,',
      '9223372036854775808,too large,',
      ',no id,',
      '3,,no name',
      '4,"good",',
      '5,stray "quote",',
      '6,good too,',
    ];
    assert.deepEqual(await outline(csv, lines.join('\n'), 5), [
      '2: two\r\nlines',
      '5: the line is not CSV: expected 3 cells, found 2',
      '6: the field `id` must be an integer from -9223372036854775808 to 9223372036854775807',
      '7: the field `id` must be an integer from -9223372036854775808 to 9223372036854775807',
      '8: the field `id` is required',
      '9: the field `name` is required',
      '10: good',
      '11: the line is not CSV: a quotation mark stands inside a cell that does not begin with one',
      '12: good too',
    ]);
  });

  test('a record over several lines is one invalid line, the first', async () => {
    const lines = [
      'id,name,tag',
      '1,"two',
      'lines"',
      '',
      '"2"x,"a,',
      '3,b,',
      '4,"c',
      '5,d",e",',
      '',
      '6,"two',
      'lines","misplaced"x',
      '7,f,g"',
      '"8"x",',
      '',
      '9,good,',
      '10,"h"x"y',
      '11,i,',
    ];
    const ends = ['\n', '\r\n'];
    for (const end of ends)
      for (const chunk of [1, 5, 1_000])
        assert.deepEqual(await outline(csv, lines.join(end), chunk), [
          '2: the line is not CSV: expected 3 cells, found 2',
          '5: the line is not CSV: text follows the closing quotation mark of a cell',
          '10: the line is not CSV: text follows the closing quotation mark of a cell',
          '13: the line is not CSV: text follows the closing quotation mark of a cell',
          '15: good',
          '16: the line is not CSV: text follows the closing quotation mark of a cell',
        ]);
  });

  test('text that is not UTF-8 is invalid, and not replaced', async () => {
    const content = Buffer.concat([
      Buffer.from('id,name\n1,'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('\n2,é\n'),
    ]);
    assert.deepEqual(await outline(csv, content), ['2: the field `name` is not UTF-8', '3: é']);
  });

  test('header without column names → error, and nothing is read', async () => {
    for (const text of ['', '1,Alder,Alnus\n', 'id\n1\n', 'id,name,id\n1,a,2\n']) {
      await assert.rejects(read(csv, text), (error: unknown) => {
        return error instanceof FileInvalid && /id,name,tag/.test(error.message);
      });
    }
  });

  for (const [what, content, message] of [
    [
      'semicolons',
      '\ufeffid;name;tag\r\n1;Alder;\r\n',
      /^the columns are separated by semicolons; use commas/,
    ],
    ['tabs', 'id\tname\n1\tAlder\n', /^the columns are separated by tabs; use commas/],
    [
      'upper case',
      'ID,Name,Tag\n1,Alder,\n',
      /^the column names must be in lower case and without spaces, such as id,name,tag/,
    ],
    ['one name in upper case', 'id,Name\n1,Alder\n', /^the column names must be in lower case/],
    ['an optional name in upper case', 'id,name,Tag\n1,a,b\n', /^the column names must be in lower case/],
    ['a space before an optional name', 'id,name, tag\n1,a,b\n', /in lower case and without spaces/],
    ['CR CR LF', 'id,name,tag\r\r\n1,a,b\r\r\n', /^the first line must end in LF or CRLF, not CR/],
    ['CR', 'id,name,tag\r1,a,b\r', /^the first line must end in LF or CRLF, not CR/],
    ['a column twice', 'id,name,name\n1,a,b\n', /^the column name occurs twice; name each column once/],
    ['quoted names, semicolons', '"id";"name"\n1;Alder\n', /^the columns are separated by semicolons/],
    ['a quoted name after a semicolon', 'id;"name"\n1;Alder\n', /^the columns are separated by semicolons/],
    ['quoted names, tabs', '"id"\t"name"\n1\tAlder\n', /^the columns are separated by tabs/],
    ['quoted names, CR', '"id","name"\r"1","Alder"\r', /^the first line must end in LF or CRLF, not CR/],
    ['a quoted id, CR', 'id,name\r"1","Alder"\r', /^the first line must end in LF or CRLF, not CR/],
    ['no name', 'id,tag\n1,a\n', /^the first line must name the columns, such as/],
    [
      'a misplaced quote',
      'id,"na"me,tag\n1,Alder,\n',
      /^the first line is not CSV: text follows the closing quotation mark of a cell; it must name the columns, such as id,name,tag/,
    ],
    [
      'an unclosed quote',
      'id,"name,tag\n1,a,b\n',
      /^the first line is not CSV: .* no closing quotation mark/,
    ],
    ['an empty file', '', /^the file is empty or blank; the first line must name the columns/],
    ['UTF-16', Buffer.from('\ufeffid,name\n1,a\n', 'utf16le'), /^the file is UTF-16; save it as UTF-8$/],
    ['UTF-16, high byte first', utf16be('\ufeffid,name\n'), /^the file is UTF-16; save it as UTF-8$/],
    ['UTF-16 without mark', Buffer.from('id,name\n', 'utf16le'), /^the file is UTF-16; save it as UTF-8$/],
    ['gzip', gzipSync('id,name\n1,a\n'), /^the file is compressed; decompress it first$/],
    ['zstd', zstdCompressSync('id,name\n1,a\n'), /^the file is compressed/],
    ['xz', Buffer.from('fd377a585a0000', 'hex'), /^the file is compressed/],
    ['bzip2', Buffer.from('BZh91AY'), /^the file is compressed/],
    ['zip', Buffer.from('504b030414', 'hex'), /^the file is compressed/],
  ] as const) {
    test(`${what} → the error says what to change`, async () => {
      for (const chunk of [1, 1_000])
        await assert.rejects(read(csv, content, chunk), (error: unknown) => {
          assert.ok(error instanceof FileInvalid);
          assert.match(error.message, message);
          return true;
        });
    });
  }

  test('a record or a first line with too many cells → ends the import before its end is read', async () => {
    const full = ','.repeat(MAX_CELLS - 3);
    assert.deepEqual(await outline(csv, `id,name,${full}\n1,a,${full}\n`), ['2: a']);
    const endless = async (start: string): Promise<number> => {
      let sent = 0;
      async function* commas(): AsyncGenerator<Buffer> {
        for (yield Buffer.from(start); sent < MEBIBYTE; sent += 1_000) yield Buffer.from(','.repeat(1_000));
      }
      const line = start.split('\n').length;
      await assert.rejects(
        async () => {
          for await (const _ of csv.read(commas()));
        },
        new FileInvalid(`line ${line} has more than ${MAX_CELLS} cells`),
      );
      return sent;
    };
    for (const start of ['id,name', 'id,name\n1,a\n2,'])
      assert.ok((await endless(start)) < MAX_CELLS + 2_000, start);
    await assert.rejects(read(csv, 'id,name\r'.repeat(MAX_CELLS)), /must end in LF or CRLF, not CR/);
  });

  test('unclosed quote → the error has its line', async () => {
    assert.deepEqual(await outline(csv, 'id,name\n1,a\n2,"b\n3,c\n'), [
      '2: a',
      '3: the line is not CSV: a cell has no closing quotation mark',
    ]);
  });
});

function utf16be(text: string): Buffer {
  return Buffer.from(text, 'utf16le').swap16();
}

test('NDJSON: compressed → the error says what to do', async () => {
  await assert.rejects(read(ndjson, gzipSync('{"id":1,"name":"a"}')), {
    name: 'FileInvalid',
    message: 'the file is compressed; decompress it first',
  });
});

test('NDJSON: an error that is not the fault of a line → ends the reading', async (t) => {
  const fault = new RangeError('Invalid string length');
  t.mock.method(JSON, 'parse', () => {
    throw fault;
  });
  await assert.rejects(read(ndjson, '{"id":1,"name":"\\u0041"}'), fault);
});
