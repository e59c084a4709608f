/** Error: the request line alone exceeds the limit for request line and headers together. */
export class TargetTooLong extends Error {
  override readonly name = 'TargetTooLong';
}

export class RequestTimeout extends Error {
  override readonly name = 'RequestTimeout';
}

type ParseFault = 'fieldsTooLarge' | 'extensionsTooLarge' | 'tooManyRecords' | 'unknownMethod' | 'malformed';

/** Error: the bytes of a client are not a valid HTTP message, or exceed a limit of the parser. */
export class ParseError extends Error {
  override readonly name = 'ParseError';
  readonly fault: ParseFault;

  constructor(fault: ParseFault) {
    super(`invalid HTTP: ${fault}`);
    this.fault = fault;
  }
}
