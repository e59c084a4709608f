import { Command, Option } from 'commander';
import type { Flags } from '../../config.ts';
import { type Entry, FileInvalid, type Format } from '../../formats/format.ts';
import { ndjson } from '../../formats/ndjson.ts';
import { type PlantRow, toPlantRow } from '../../plant.ts';
import { type Bulk, type OnConflict, onConflicts } from '../../store/bulk-store.ts';
import { charactersIn } from '../../store/rows.ts';
import { isOutcomeUnknown, StatementRejected, StoreUnavailable } from '../../store/store.ts';
import { messageOf } from '../../thrown-errors.ts';
import { rejectUnlessOwner } from '../arguments.ts';
import { CommandFailed, explainFileError } from '../command-errors.ts';
import type { CommandContext } from '../context.ts';
import { pluralize, printResult, writeMessage } from '../message.ts';
import { withBulk } from '../open-store.ts';
import {
  addFormat,
  type FormatName,
  formatOf,
  openSource,
  parsePlantFile,
  type Source,
  STANDARD_STREAM,
} from '../plant-file.ts';
import { startProgress } from '../progress.ts';
import { addSettings, configOf } from '../settings/flags.ts';
import { onSignal } from '../signal-handler.ts';

/**
 * Max plants in one transaction. Smaller batches need more fsync calls for the same number of plants. Larger
 * batches delay the requests of a running service.
 */
export const PLANTS_IN_BATCH = 2_000;
export const CHARACTERS_IN_BATCH = 4 * 1024 * 1024;

/** Max invalid lines to report one by one. Further invalid lines are only counted. */
export const INVALID_LINES_SHOWN = 20;

/**
 * Returns the `--on-conflict` flag to suggest for importing the file again, after a correction or an
 * interruption. Keeps `replace`. Any other value becomes `skip`, which leaves stored plants unchanged.
 */
function againFlag(onConflict: OnConflict): string {
  return `--on-conflict ${onConflict === 'replace' ? 'replace' : 'skip'}`;
}

type ImportFlags = Flags & { onConflict: OnConflict; format?: FormatName; json?: true };

/** Counts of created, skipped and replaced plants. `bad` counts invalid lines. */
interface Counts {
  created: number;
  skipped: number;
  replaced: number;
  bad: number;
}

export function importCommand(context: CommandContext): Command {
  const command = new Command('import')
    .description('creates the plants of a file for an owner; reports and skips invalid lines')
    .argument('<owner>', 'owner of the new plants')
    .argument('[file]', 'NDJSON or CSV; - for standard input', parsePlantFile(context), STANDARD_STREAM)
    .addOption(
      new Option(
        '--on-conflict <what>',
        'what to do if an id is taken: stop with an error, keep the stored plant, or replace it',
      )
        .choices(onConflicts)
        .default('fail'),
    )
    .option('--json', 'print the counts as a JSON object');
  return addSettings(addFormat(command), ['databaseUrl']).action(
    async (owner: string, file: string, flags: ImportFlags) => {
      rejectUnlessOwner(owner);
      const config = configOf(context, flags);
      const source = await openSource(context, file);
      try {
        // Only after the file is open: the extension of a folder, or of a missing file, does not matter.
        const format = formatOf(file, flags.format);
        const counts = await withBulk(context, config, (bulk) =>
          importPlants(context, bulk, owner, { format, source, onConflict: flags.onConflict }),
        );
        const printing = printResult(
          context,
          flags.json === true ? `${JSON.stringify(counts)}\n` : `${saved(counts, owner)}\n`,
        );
        if (counts.bad === 0) return await printing;
        // The program reports an error of standard output; it must not hide the invalid lines.
        await printing.catch(() => undefined);
        const mayBeCsv = format === ndjson && flags.format === undefined;
        throw new CommandFailed(describeBad(counts, flags.onConflict, mayBeCsv));
      } finally {
        source.chunks.destroy();
      }
    },
  );
}

/** The input cannot be read to its end. The message names it. */
class InputFailed extends CommandFailed {}

/** Errors after which earlier batches stay stored, and the import can be run again. */
const INTERRUPTING = [StoreUnavailable, StatementRejected, InputFailed];

interface Import {
  readonly format: Format;
  readonly source: Source;
  readonly onConflict: OnConflict;
}

interface Line {
  readonly line: number;
  readonly plant: PlantRow;
}

async function importPlants(
  context: CommandContext,
  bulk: Bulk,
  owner: string,
  { format, source, onConflict }: Import,
): Promise<Counts> {
  const counts: Counts = { created: 0, skipped: 0, replaced: 0, bad: 0 };
  // Shows no progress bar if the user types the plants at a terminal: the bar would overwrite the typed text.
  const progress = startProgress(context.stderr, 'plants', source.size, source.isTyped);
  /** Number of plants in the batch that is being saved; 0 between saves. */
  let saving = 0;
  let stoppedBy: NodeJS.Signals | undefined;
  // A signal during a save ends the import after this save. A signal between saves ends the import immediately,
  // since reading from a terminal may block for ever.
  const stopListening = onSignal(context, (signal) => {
    stoppedBy = signal;
    if (saving === 0) endBy(signal);
  });

  // Ends the process by the received signal. If the process ended with an exit code, a calling shell script
  // would continue with its next command.
  function endBy(signal: NodeJS.Signals): void {
    progress.stop();
    writeMessage(context.stderr, `plant-store: interrupted; ${unfinished()}`);
    context.end(signal);
  }

  function unfinished(unknown = 0): string {
    const perhaps = unknown === 0 ? '' : `, perhaps up to ${unknown} more`;
    return `${saved(counts)}${perhaps}; import the file again with ${againFlag(onConflict)} to finish`;
  }

  let bytes = 0;

  async function* countBytes(): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of source.chunks) {
        bytes += chunk.length;
        yield chunk;
      }
    } catch (error: unknown) {
      const known = explainFileError('read', source.name, error);
      const message =
        known instanceof CommandFailed ? known.message : `cannot read ${source.name}: ${messageOf(error)}`;
      throw new InputFailed(message, { cause: error });
    }
  }

  function reportBad(line: number, reason: string): void {
    counts.bad += 1;
    if (counts.bad <= INVALID_LINES_SHOWN) progress.note(`line ${line}: ${reason}`);
  }

  try {
    const entries = format.read(countBytes(), (warning) => progress.note(`plant-store: ${warning}`));
    for await (const batch of toBatches(entries, owner, reportBad)) {
      saving = batch.length;
      await saveBatch(bulk, batch, onConflict, counts);
      saving = 0;
      if (stoppedBy !== undefined) endBy(stoppedBy);
      progress.advance(counts.created + counts.skipped + counts.replaced, bytes);
    }
    return counts;
  } catch (error: unknown) {
    if (error instanceof FileInvalid && counts.created + counts.skipped + counts.replaced > 0)
      throw new CommandFailed(`${error.message}; correct the file. ${unfinished()}`);
    if (!INTERRUPTING.some((kind) => error instanceof kind)) throw error;
    throw new CommandFailed(`${messageOf(error)}; ${unfinished(isOutcomeUnknown(error) ? saving : 0)}`);
  } finally {
    stopListening();
    progress.stop();
  }
}

async function* toBatches(
  pages: AsyncIterable<readonly Entry[]>,
  owner: string,
  reportBad: (line: number, reason: string) => void,
): AsyncGenerator<readonly Line[]> {
  let batch: Line[] = [];
  let characters = 0;
  for await (const entries of pages) {
    for (const entry of entries) {
      if ('reason' in entry) {
        reportBad(entry.line, entry.reason);
        continue;
      }
      batch.push({ line: entry.line, plant: toPlantRow(owner, entry.plant) });
      characters += charactersIn(entry.plant);
      if (batch.length < PLANTS_IN_BATCH && characters < CHARACTERS_IN_BATCH) continue;
      yield batch;
      batch = [];
      characters = 0;
    }
  }
  yield batch;
}

async function saveBatch(
  bulk: Bulk,
  batch: readonly Line[],
  onConflict: OnConflict,
  counts: Counts,
): Promise<void> {
  const plants = batch.map(({ plant }) => plant);
  const taken = await bulk.savePlants(plants, onConflict);
  const [first] = taken;
  if (onConflict === 'fail' && first !== undefined) {
    const takenBefore = await bulk.savePlants(plants.slice(0, first), 'skip');
    counts.created += first - takenBefore.length;
    throw new CommandFailed(
      `line ${batch[first]?.line}: a plant with the id ${plants[first]?.id} already exists; ` +
        `earlier valid lines were imported (${counts.created} created), this line and later ones were not. ` +
        'Use --on-conflict skip to keep existing plants, or replace to overwrite them',
    );
  }
  counts.created += batch.length - taken.length;
  counts[onConflict === 'replace' ? 'replaced' : 'skipped'] += taken.length;
}

/** Describes the saved plants, for example `2 plants of alice created, 1 replaced`. */
function saved({ created, skipped, replaced }: Counts, owner?: string): string {
  const whose = owner === undefined ? '' : ` of ${owner}`;
  const others = [skipped > 0 ? `, ${skipped} skipped` : '', replaced > 0 ? `, ${replaced} replaced` : ''];
  return `${pluralize(created, 'plant')}${whose} created${others.join('')}`;
}

function describeBad(counts: Counts, onConflict: OnConflict, mayBeCsv: boolean): string {
  const { bad, created, skipped, replaced } = counts;
  const shown = bad > INVALID_LINES_SHOWN ? ` (the first ${INVALID_LINES_SHOWN} are shown)` : '';
  const hint = mayBeCsv && created + skipped + replaced === 0 ? '. For CSV, add --format csv' : '';
  return `${pluralize(bad, 'invalid line')} skipped${shown}; correct the file and import it again with ${againFlag(onConflict)}${hint}`;
}
