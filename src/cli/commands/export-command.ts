import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Command } from 'commander';
import type { Flags } from '../../config.ts';
import { displayUrl } from '../../database-url.ts';
import type { Format } from '../../formats/format.ts';
import type { Bulk } from '../../store/bulk-store.ts';
import { escapeLines } from '../../terminal-text.ts';
import { rejectUnlessOwner } from '../arguments.ts';
import { writeAtomically } from '../atomic-file.ts';
import type { CommandContext } from '../context.ts';
import { pluralize, writeMessage } from '../message.ts';
import { withBulk } from '../open-store.ts';
import { addFormat, type FormatName, formatOf, parsePlantFile, STANDARD_STREAM } from '../plant-file.ts';
import { startProgress } from '../progress.ts';
import { addSettings, configOf } from '../settings/flags.ts';

export function exportCommand(context: CommandContext): Command {
  const command = new Command('export')
    .description('writes the plants of an owner, sorted by id, to a file that `import` reads')
    .argument('<owner>', 'owner of the plants')
    .argument(
      '[file]',
      'new NDJSON or CSV file; - for standard output',
      parsePlantFile(context),
      STANDARD_STREAM,
    );
  return addSettings(addFormat(command), ['databaseUrl']).action(
    async (owner: string, file: string, flags: Flags & { format?: FormatName }) => {
      rejectUnlessOwner(owner);
      const format = formatOf(file, flags.format);
      const config = configOf(context, flags);
      const exportTo = (write: Export['write']): Promise<number> =>
        withBulk(context, config, (bulk) => exportPlants(context, { bulk, owner, format, file, write }), {
          mustExist: true,
        });
      // Creates the output file first: a name that is taken must not lead to a migration of the store.
      const exported = await (file === STANDARD_STREAM
        ? exportTo((texts) => pipeline(texts, context.stdout, { end: false }))
        : writeAtomically(context, file, ({ handle }) => exportTo((texts) => handle.writeFile(texts))));
      writeMessage(
        context.stderr,
        exported === 0
          ? `the owner ${owner} has no plants in the store at ${displayUrl(config.databaseUrl)}`
          : `${pluralize(exported, 'plant')} of ${owner} exported`,
      );
    },
  );
}

interface Export {
  readonly bulk: Bulk;
  readonly owner: string;
  readonly format: Format;
  readonly file: string;
  readonly write: (texts: Readable) => Promise<void>;
}

/** Writes a consistent snapshot of an owner's plants. */
function exportPlants(
  context: CommandContext,
  { bulk, owner, format, file, write }: Export,
): Promise<number> {
  return bulk.read(['plants'], async (contents) => {
    const count = await contents.countPlants(owner);
    let written = 0;
    const isShown = file === STANDARD_STREAM && context.stdout.isTTY === true;
    // The bar would overwrite plants on the same terminal.
    const progress = startProgress(context.stderr, 'plants', count, isShown);

    async function* texts(): AsyncGenerator<string> {
      yield format.header;
      for await (const page of contents.plants(owner)) {
        const text = format.write(page);
        yield isShown ? escapeLines(text) : text;
        written += page.length;
        progress.advance(written);
      }
    }

    try {
      await write(Readable.from(texts(), { highWaterMark: 1 }));
      return written;
    } finally {
      progress.stop();
    }
  });
}
