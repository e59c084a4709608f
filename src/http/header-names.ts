const cases = new Map([
  ['etag', 'ETag'],
  ['www-authenticate', 'WWW-Authenticate'],
]);

/**
 * Converts a header name from lower case to its documented case: `x-request-id` to `X-Request-Id`. HTTP
 * ignores the case (RFC 9110 §5.1). But some generated clients look up headers by the name in the OpenAPI
 * document.
 */
export function headerCase(name: string): string {
  const known = cases.get(name);
  if (known !== undefined) return known;
  const cased = name.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase());
  cases.set(name, cased);
  return cased;
}

/**
 * Counts how often a header was sent. Node hides repetitions: it keeps only the first value of some headers.
 */
export function countOf(rawHeaders: readonly string[], name: string): number {
  let count = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const header = rawHeaders[index];
    if (header?.length === name.length && header.toLowerCase() === name) count += 1;
  }
  return count;
}
