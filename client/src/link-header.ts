/**
 * Matches a link and its parameters (RFC 8288 §3). Takes linear time: after `<`, any text matches, so the engine never
 * backtracks.
 */
const LINK = /<([^>]*)>?((?:[^",]|"(?:[^"\\]|\\.)*"?)*)/g;

/** Matches a parameter: its name, and its quoted or plain value. Takes linear time, as LINK does. */
const PARAMETER = /;\s*([^\s=;]*)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"?|([^\s;]*)))?/g;

/** Returns the target of the first link with the relation `next` in a Link header; undefined if it has none. */
export function nextTarget(header: string): string | undefined {
  for (const [, target, parameters = ''] of header.matchAll(LINK)) {
    if (relationsOf(parameters).includes('next')) return target;
  }
  return undefined;
}

/** Returns the relations of a link in lower case. Only its first `rel` counts (RFC 8288 §3.3). */
function relationsOf(parameters: string): readonly string[] {
  for (const [, name = '', quoted, plain = ''] of parameters.matchAll(PARAMETER)) {
    if (name.toLowerCase() === 'rel') return (quoted ?? plain).toLowerCase().split(/\s+/);
  }
  return [];
}
