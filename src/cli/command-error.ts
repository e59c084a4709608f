/** A command that could not do what it was asked; the message says what to do instead. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed';
}
