import { readFile } from 'node:fs/promises';

const PAGE = new URL('../../docs/generated-clients.md', import.meta.url);

/** The texts of a section of the page that a reader copies. */
interface Section {
  /** The contents of files, by name: the code blocks with a title. */
  readonly files: ReadonlyMap<string, string>;
  /** The shell commands. */
  readonly commands: string;
}

/** Reads the sections of docs/generated-clients.md, by heading. A section ends at the next heading. */
export async function readSections(): Promise<ReadonlyMap<string, Section>> {
  const text = await readFile(PAGE, 'utf8');
  const parts = text.split(/^#+ (?=[^\n]+\n\n)/m).slice(1);
  return new Map(
    parts.map((part) => {
      const [heading = ''] = part.split('\n', 1);
      const blocks = [...part.matchAll(/^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$/gms)];
      const files = blocks.flatMap(([, , title, code = '']) =>
        title === undefined ? [] : [[title, code] as const],
      );
      const shell = blocks.filter(([, language]) => language === 'sh');
      return [heading, { files: new Map(files), commands: shell.map(([, , , code]) => code).join('') }];
    }),
  );
}
