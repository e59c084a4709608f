import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import type { Format } from '../../formats/format.ts';
import type { Bulk } from '../../store/bulk-store.ts';
import { parseFile, rejectUnlessOwner } from '../arguments.ts';
import { writeAtomically } from '../atomic-file.ts';
import { addSettings } from '../flags.ts';
import { pluralize, writeMessage } from '../message.ts';
import { withBulk } from '../open-store.ts';
import { addFormat, type FormatName, formatOf, STANDARD_STREAM } from '../plant-file.ts';
import { startProgress } from '../progress.ts';

export function exportCommand(): Command {
  const command = new Command('export')
    .description('writes the plants of an owner, sorted by id, to a file that `import` reads')
    .argument('<owner>', 'owner of the plants')
    .argument('[file]', 'new NDJSON or CSV file; - for standard output', parseFile, STANDARD_STREAM);
  return addSettings(addFormat(command), ['databaseUrl']).action(
    async (owner: string, file: string, flags: Flags & { format?: FormatName }) => {
      rejectUnlessOwner(owner);
      const format = formatOf(file, flags.format);
      const exported = await withBulk(
        { flags },
        (bulk) =>
          file === STANDARD_STREAM
            ? exportPlants(bulk, owner, format, process.stdout)
            : writeAtomically(file, (partial) =>
                exportPlants(bulk, owner, format, createWriteStream(partial, { flags: 'r+' })),
              ),
        { which: 'existing' },
      );
      writeMessage(
        exported === 0 ? `${owner} has no plants` : `${pluralize(exported, 'plant')} of ${owner} exported`,
      );
    },
  );
}

/** Writes a consistent snapshot of the plants. */
function exportPlants(bulk: Bulk, owner: string, format: Format, to: NodeJS.WritableStream): Promise<number> {
  return bulk.read(async (contents) => {
    const progress = startProgress('plants', await contents.countPlants(owner));
    let written = 0;

    async function* texts(): AsyncGenerator<string> {
      yield format.header;
      for await (const page of contents.plants(owner)) {
        yield format.write(page);
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
