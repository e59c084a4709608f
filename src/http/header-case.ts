const cases = new Map([
  ['etag', 'ETag'],
  ['www-authenticate', 'WWW-Authenticate'],
]);

/**
 * Returns the documented case of a header name in lower case: `X-Request-Id` for `x-request-id`. HTTP ignores the case
 * (RFC 9110 §5.1), but some generated clients look headers up by the name in the OpenAPI document.
 */
export function headerCase(name: string): string {
  const known = cases.get(name);
  if (known !== undefined) return known;
  const cased = name.replace(/(^|-)[a-z]/g, (start) => start.toUpperCase());
  cases.set(name, cased);
  return cased;
}
