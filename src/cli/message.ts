import { escapeLine } from '../terminal-text.ts';
import { TOKEN_PREFIX } from '../token.ts';
import { type CommandContext, type Output, print } from './context.ts';

/** A token, or a part of one that is long enough to be secret. */
const TOKEN = new RegExp(`${TOKEN_PREFIX}[0-9A-Za-z]{20,}`, 'g');

/** A JWT (RFC 7519 §3): the header of each begins with `{"`. */
const JWT = /eyJ[\w-]+\.[\w-]+\.[\w-]*/g;

/** Writes a line to standard error. Escapes control characters, since a message may quote any input. */
export function writeMessage(stderr: Output, line: string): void {
  stderr.write(`${escapeLine(line)}\n`);
}

/**
 * Prints the result of a command that has changed a store. If standard output cannot be written, writes the result to standard
 * error, so that the command is not repeated, and rejects with OutputFailed.
 */
export async function printResult(context: CommandContext, text: string): Promise<void> {
  await print(context, text).catch((error: unknown) => {
    const result = text.trimEnd().replaceAll('\n', '; ');
    writeMessage(context.stderr, `plant-store: the result could not be printed: ${result}`);
    throw error;
  });
}

/**
 * Hides tokens, and passwords of database URLs, in a message that quotes arguments. A user or password may contain any
 * character, so the text from `//` to the last `@` of a line is hidden, and that after `password=` up to `&` or the end of
 * the line. Keeps the example in the rule for database URLs, and paths of files.
 */
export function redact(text: string): string {
  return text
    .replace(TOKEN, `${TOKEN_PREFIX}***`)
    .replace(JWT, 'eyJ***')
    .replace(/(:\/\/)(?!\/|USER:PASSWORD@HOST:PORT\b)[^:\n]*:.*@/g, '$1***@')
    .replace(/(\bpass[^\s=&]*=)[^&\n]*/gi, '$1***');
}

/** Returns a number with its noun: `1 plant`, `630 plants`. */
export function pluralize(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
