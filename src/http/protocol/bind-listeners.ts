import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { codeOf, OperatorError } from '../../thrown-errors.ts';

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
 * Rejects with CannotListen if an address cannot be bound now. A start checks this before it opens the store: it must
 * not migrate the store if another process, perhaps of an older version, still has the port.
 */
export async function rejectUnlessFree(first: Address, second: Address): Promise<void> {
  const servers = [createServer(), createServer()] as const;
  const bind = async ({ host, port }: Address, server: Server): Promise<void> => {
    await once(server.listen({ host, port }), 'listening');
  };
  try {
    await both(
      explained(first, second, bind(first, servers[0])),
      explained(second, first, bind(second, servers[1])),
    );
  } finally {
    for (const server of servers) server.close();
  }
}

/**
 * Starts to listen with the public and the admin application, and resolves to their URLs. Rejects with
 * CannotListen, which reports all bind errors together.
 */
export function listenOnBoth(
  [first, firstAddress]: readonly [FastifyInstance, Address],
  [second, secondAddress]: readonly [FastifyInstance, Address],
): Promise<readonly [string, string]> {
  const listen = (app: FastifyInstance, { host, port }: Address): Promise<string> =>
    app.listen({ host, port, backlog: BACKLOG });
  return both(
    explained(firstAddress, secondAddress, listen(first, firstAddress)),
    explained(secondAddress, firstAddress, listen(second, secondAddress)),
  );
}

async function both<T>(first: Promise<T>, second: Promise<T>): Promise<readonly [T, T]> {
  const [one, other] = await Promise.allSettled([first, second]);
  if (one.status === 'fulfilled' && other.status === 'fulfilled') return [one.value, other.value];
  const reasons = [one, other].flatMap((result): readonly unknown[] =>
    result.status === 'rejected' ? [result.reason] : [],
  );
  const bindErrors = reasons.filter((reason) => reason instanceof CannotListen);
  if (bindErrors.length < reasons.length) throw reasons.find((reason) => !(reason instanceof CannotListen));
  const messages = new Set(bindErrors.map(({ message }) => message));
  throw new CannotListen([...messages].join('; '), { cause: bindErrors[0] });
}

/** Converts an error of a bind to CannotListen, if the reason is known. `other` is the address of the other listener. */
async function explained<T>(address: Address, other: Address, bound: Promise<T>): Promise<T> {
  try {
    return await bound;
  } catch (error: unknown) {
    const reason = reasonOf(codeOf(error), address, other);
    if (reason === undefined) throw error;
    throw new CannotListen(reason, { cause: error });
  }
}

function reasonOf(code: string, { host, port, namesOf }: Address, other: Address): string | undefined {
  switch (code) {
    case 'EADDRINUSE':
      if (port === other.port && host === other.host)
        return `${[namesOf.port, other.namesOf.port].sort().join(' and ')} are both ${port}; choose another port for one of them`;
      return `port ${port} of ${host} is in use; stop the program that uses it, or choose another with ${namesOf.port}`;
    case 'EACCES':
      return `port ${port} of ${host} is reserved for root; choose a port from 1024 up with ${namesOf.port}`;
    case 'EADDRNOTAVAIL':
      return `this machine has no address ${host}; choose one of its addresses with ${namesOf.host}`;
    case 'EAFNOSUPPORT':
      return `this machine has no IPv6, which ${host} needs; choose an IPv4 address with ${namesOf.host}`;
    case 'EMFILE':
    case 'ENFILE':
      return `port ${port} of ${host} cannot be bound, since too many files are open (${code}); raise the limit on open files (${code === 'EMFILE' ? 'ulimit -n' : 'fs.file-max'})`;
    case 'EINVAL':
      return `${host} is not an address to listen on; a link-local address needs its interface, as in fe80::1%eth0; choose another with ${namesOf.host}`;
    case 'EAI_AGAIN':
      return `the host name ${host} cannot be looked up now; check the name server, or choose an address with ${namesOf.host}`;
    case 'ENOTFOUND':
      return `the host name ${host} has no address; choose another with ${namesOf.host}`;
    default:
      return undefined;
  }
}
