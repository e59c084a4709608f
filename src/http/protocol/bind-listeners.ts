import type { FastifyInstance } from 'fastify';
import { codeOf } from '../../api-errors.ts';

/** Where to listen, and what says so on the command line: `--port (PORT)`. */
interface Address {
  readonly host: string;
  readonly port: number;
  readonly namesOf: { readonly host: string; readonly port: string };
}

/** Connections that may wait to be accepted; the kernel may allow fewer. Beyond it clients wait for a second or more. */
const BACKLOG = 4_096;

/** An address that cannot be listened on; the message says why and which setting names another. */
export class CannotListen extends Error {
  override readonly name = 'CannotListen';
}

/**
 * Has both applications listen and resolves to their URLs. Rejects with CannotListen, with all that is wrong: who mends
 * one should not be told of the other only then.
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
  const told = reasons.filter((reason) => reason instanceof CannotListen);
  if (told.length < reasons.length) throw reasons.find((reason) => !(reason instanceof CannotListen));
  throw new CannotListen(told.map(({ message }) => message).join('; '), { cause: told[0] });
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
      return `port ${port} of ${host} is not for this user; choose one from 1024 on with ${namesOf.port}`;
    case 'EADDRNOTAVAIL':
      return `this machine has no address ${host}; choose one of its own with ${namesOf.host}`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `the host name ${host} has no address; choose another with ${namesOf.host}`;
    default:
      return undefined;
  }
}
