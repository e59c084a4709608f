import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import type { Format } from '../../formats/format.ts';
import type { Bulk } from '../../store/bulk-store.ts';
import { makeWholeFile } from '../atomic-file.ts';
import { parseFile } from '../file-argument.ts';
import { addSettings } from '../flags.ts';
import { writeMessage } from '../message.ts';
import { withBulk } from '../open-store.ts';
import { rejectUnlessOwner } from '../owner-argument.ts';
import { addFormat, type FormatName, formatOf, STANDARD_STREAM } from '../plant-file.ts';
import { count } from '../pluralize.ts';
import { startProgress } from '../progress.ts';

export function exportCommand(): Command {
  const command = new Command('export')
    .description('writes the plants of an owner, by their ids, to a file that `import` reads')
    .argument('<owner>', 'whose plants')
    .argument('[file]', 'NDJSON or CSV, a new file; - for standard output', parseFile, STANDARD_STREAM);
  return addSettings(addFormat(command), ['databaseUrl']).action(
    async (owner: string, file: string, flags: Flags & { format?: FormatName }) => {
      rejectUnlessOwner(owner);
      const format = formatOf(file, flags.format);
      const exported = await withBulk(
        { flags },
        (bulk) =>
          file === STANDARD_STREAM
            ? exportPlants(bulk, owner, format, process.stdout)
            : makeWholeFile(file, (partial) =>
                exportPlants(bulk, owner, format, createWriteStream(partial, { flags: 'r+' })),
              ),
        { which: 'existing' },
      );
      writeMessage(
        exported === 0 ? `${owner} has no plants` : `${count(exported, 'plant')} of ${owner} exported`,
      );
    },
  );
}

/** Writes the plants as they are at one moment. */
function exportPlants(bulk: Bulk, owner: string, format: Format, to: NodeJS.WritableStream): Promise<number> {
  return bulk.read(async (contents) => {
    const progress = startProgress('plants', await contents.countPlants(owner));
    let written = 0;

    async function* texts(): AsyncGenerator<string> {
      yield format.header;
      for await (const page of contents.plants(owner)) {
        yield format.write(page.map(({ id, name, tag }) => ({ id, name, ...(tag === null ? {} : { tag }) })));
        written += page.length;
        progress.advance(written);
      }
    }

    try {
      await pipeline(Readable.from(texts(), { highWaterMark: 1 }), to, { end: to !== process.stdout });
      return written;
    } finally {
      progress.stop();
    }
  });
}
