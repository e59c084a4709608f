import type { FastifyInstance } from 'fastify';
import { codeOf } from '../../api-errors.ts';
import { OperatorError } from '../../operator-error.ts';

/**
 * An address to listen on. `namesOf` holds the names of the host and port settings for error messages, such
 * as `--port (PORT)`.
 */
interface Address {
  readonly host: string;
  readonly port: number;
  readonly namesOf: { readonly host: string; readonly port: string };
}

/**
 * Max connections that wait until a listener accepts them (listen backlog). The kernel may apply a lower
 * limit. If this queue is full, the client's TCP stack must retry, and connecting takes seconds.
 */
const BACKLOG = 4_096;

/** Error: an address cannot be bound. The message has the reason and the setting to change. */
export class CannotListen extends OperatorError {
  override readonly name = 'CannotListen';
}

/**
 * Starts to listen with the public and the admin application, and resolves to their URLs. Rejects with
 * CannotListen, which reports all bind errors at once.
 */
export async function listenOnBoth(
  [first, firstAddress]: readonly [FastifyInstance, Address],
  [second, secondAddress]: readonly [FastifyInstance, Address],
): Promise<readonly [string, string]> {
  const [one, other] = await Promise.allSettled([listen(first, firstAddress), listen(second, secondAddress)]);
  if (one.status === 'fulfilled' && other.status === 'fulfilled') return [one.value, other.value];
  const reasons = [one, other].flatMap((result): readonly unknown[] =>
    result.status === 'rejected' ? [result.reason] : [],
  );
  const bindErrors = reasons.filter((reason) => reason instanceof CannotListen);
  if (bindErrors.length < reasons.length) throw reasons.find((reason) => !(reason instanceof CannotListen));
  throw new CannotListen(bindErrors.map(({ message }) => message).join('; '), { cause: bindErrors[0] });
}

async function listen(app: FastifyInstance, address: Address): Promise<string> {
  const { host, port } = address;
  try {
    return await app.listen({ host, port, backlog: BACKLOG });
  } catch (error: unknown) {
    const reason = reasonOf(codeOf(error), address);
    if (reason === undefined) throw error;
    throw new CannotListen(reason, { cause: error });
  }
}

function reasonOf(code: string, { host, port, namesOf }: Address): string | undefined {
  switch (code) {
    case 'EADDRINUSE':
      return `port ${port} of ${host} is in use; choose another with ${namesOf.port}`;
    case 'EACCES':
      return `port ${port} of ${host} is reserved for root; choose a port from 1024 up with ${namesOf.port}`;
    case 'EADDRNOTAVAIL':
      return `this machine has no address ${host}; choose one of its addresses with ${namesOf.host}`;
    case 'EINVAL':
      return `${host} is not an address to listen on; a link-local address needs its interface, as in fe80::1%eth0; choose another with ${namesOf.host}`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `the host name ${host} has no address; choose another with ${namesOf.host}`;
    default:
      return undefined;
  }
}
