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
