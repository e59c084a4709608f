import { InvalidArgumentError } from 'commander';

/** What an argument names as a file. An empty one, as a shell makes of a variable that is not set, is refused. */
export function parseFile(text: string): string {
  if (text === '') throw new InvalidArgumentError('It must name a file.');
  return text;
}
