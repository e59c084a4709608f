import { flagOf, settings, variableOf } from '../../config.ts';
import { otelVariables } from './otel-variables.ts';

/** All environment variables that users set for the program: of its settings, and those without a flag. */
export const variables: readonly string[] = [
  ...settings.map(variableOf),
  'DATABASE_URL_FILE',
  'NODE_ENV',
  ...Object.keys(otelVariables),
];

/**
 * Returns the flags that npm has taken, since they were not after `--`. npm warns only if its log level shows warnings,
 * and makes variables of them.
 */
export function flagsTakenByNpm(
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  if (!environment.npm_lifecycle_event) return [];
  const isTaken = (variable: string) => environment[`npm_config_${variable.toLowerCase()}`] !== undefined;
  return settings.filter((setting) => isTaken(variableOf(setting))).map(flagOf);
}

/**
 * Finds environment variables that look like a misspelled setting, each with the variable that was probably
 * meant.
 */
export function misspelledVariables(
  environment: Readonly<Record<string, string | undefined>>,
): readonly (readonly [given: string, meant: string])[] {
  // Ignores settings of one word, such as PORT: other programs have variables with similar names.
  const known = variables.filter((name) => name.includes('_'));
  return Object.keys(environment).flatMap((given) => {
    if (known.includes(given)) return [];
    const meant = known.find((name) => isSameWord(given, name) || isOneEditApart(given, name));
    return meant === undefined ? [] : [[given, meant] as const];
  });
}

function isSameWord(given: string, name: string): boolean {
  return given.replaceAll('_', '').toUpperCase() === name.replaceAll('_', '');
}

/**
 * True if two names differ by one typing error: a character added, missing or replaced, or two adjacent
 * characters exchanged.
 */
function isOneEditApart(given: string, name: string): boolean {
  const shorter = Math.min(given.length, name.length);
  let begin = 0;
  while (begin < shorter && given[begin] === name[begin]) begin += 1;
  let end = 0;
  while (end < shorter - begin && given.at(-1 - end) === name.at(-1 - end)) end += 1;
  const typed = given.slice(begin, given.length - end);
  const meant = name.slice(begin, name.length - end);
  if (typed.length <= 1 && meant.length <= 1) return true;
  return typed.length === 2 && typed === [...meant].reverse().join('');
}
