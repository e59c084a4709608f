import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { freshFolder } from '../../support/engines.ts';
import { readFlags } from '../../support/script-flags.ts';

interface Edit {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** A limit of the service, how to lift it, and the attack that must then break a bound. */
interface LiftedLimit {
  readonly limit: string;
  readonly attack: string;
  /** A bound in the verdict that must be broken. */
  readonly breaks: RegExp;
  /** The engine that the attack needs; SQLite by default. */
  readonly engine?: 'postgres';
  /** Runs the short form of the attack. */
  readonly isShort?: true;
  /** Variables that lift the limit. */
  readonly env?: string;
  /** Changes of the source that remove the limit. */
  readonly edits?: readonly Edit[];
}

const NO_CHUNK_LIMIT: Edit = {
  file: 'src/http/protocol/connection/message-framing.ts',
  from: 'if (this.#chunks > BASE_PIECES + this.bodyBytes / BYTES_PER_PIECE) return TOO_MANY_CHUNKS;',
  to: '',
};

export const LIFTED: readonly LiftedLimit[] = [
  {
    limit: 'the write timeout',
    attack: 'unread-docs-300',
    breaks: /closed/,
    env: 'WRITE_TIMEOUT=3600000',
  },
  {
    limit: 'the memory for slow clients',
    attack: 'unread-page-300',
    breaks: /memory/,
    env: 'SEND_BUFFER_LIMIT=68719476736',
  },
  {
    limit: 'the memory of bodies that arrive in parts',
    attack: 'unfinished-large-bodies',
    breaks: /memory/,
    edits: [
      {
        file: 'src/http/app.ts',
        from: 'readsBody: body !== undefined',
        to: 'readsBody: true',
      },
      {
        file: 'src/http/overload/body-memory.ts',
        from: 'BODY_MEMORY_BYTES = 16 * 1024',
        to: 'BODY_MEMORY_BYTES = 2 ** 20',
      },
    ],
  },
  {
    limit: 'bodies that stay unparsed until their headers are checked',
    attack: 'tiny-chunks',
    breaks: /memory|p99|longest/,
    edits: [
      {
        file: 'src/http/batched-response.ts',
        from: 'return this.isBodyAccepted && !this.req.complete;',
        to: 'return !this.req.complete;',
      },
      // The limit of chunks would stop these bodies too.
      NO_CHUNK_LIMIT,
    ],
  },
  {
    limit: 'errors of the parser after Upgrade',
    attack: 'upgrade-line-ends',
    breaks: /p99|closed/,
    edits: [
      {
        file: 'src/http/protocol/connection/socket-input.ts',
        from: 'if (parsed !== bytes.length)',
        to: 'if (parsed instanceof Error)',
      },
    ],
  },
  {
    limit: 'the limit of chunks, while they are parsed',
    attack: 'tiny-chunks-at-once',
    breaks: /longest/,
    edits: [NO_CHUNK_LIMIT],
  },
  {
    limit: 'the time of the parser per event-loop iteration',
    attack: 'large-heads-at-once',
    breaks: /has ended|longest/,
    edits: [
      {
        file: 'src/http/http-app.ts',
        from: 'PARSER_BUDGET_MS = 20',
        to: 'PARSER_BUDGET_MS = 100_000',
      },
    ],
  },
  {
    limit: 'the memory of unparsed input',
    attack: 'unfinished-headers',
    breaks: /memory/,
    edits: [
      {
        file: 'src/http/protocol/connection/input-limit.ts',
        from: 'MAX_UNPARSED_BYTES = 16 * 1024',
        to: 'MAX_UNPARSED_BYTES = 2 ** 20',
      },
    ],
  },
  {
    limit: 'the order in which unparsed input is rejected',
    attack: 'unfinished-headers',
    breaks: /failures/,
    edits: [
      {
        file: 'src/http/protocol/connection/input-limit.ts',
        from: 'of this.#ofClients) {',
        to: 'of [...this.#inputs.keys()].reverse()) {',
      },
      {
        file: 'src/http/protocol/connection/input-limit.ts',
        from: 'if (oldest.waitsForClient)',
        to: 'if (oldest !== undefined)',
      },
    ],
  },
  {
    limit: 'the end of the connection after an early response',
    attack: 'huge-length',
    breaks: /read|closed/,
    edits: [
      {
        file: 'src/http/protocol/connection/connection-options.ts',
        from: 'MAX_DISCARDED_BYTES = 65_536',
        to: 'MAX_DISCARDED_BYTES = 2 ** 50',
      },
    ],
  },
  {
    limit: 'execution only after the last byte',
    attack: 'endless-chunks-delete',
    breaks: /plants/,
    edits: [
      {
        file: 'src/http/protocol/request-body.ts',
        from: 'else collect(request, reply, done);',
        to: 'else done();',
      },
    ],
  },
  {
    limit: 'the body limit',
    attack: 'endless-chunks-post',
    breaks: /read|closed/,
    edits: [
      {
        file: 'src/http/protocol/request-body.ts',
        from: 'if (now > limit) throw tooLarge;',
        to: '',
      },
    ],
  },
  {
    limit: 'the header timeout',
    attack: 'slow-headers',
    breaks: /closed/,
    env: 'HEADER_TIMEOUT=600000,REQUEST_TIMEOUT=3600000',
  },
  {
    limit: 'the request timeout',
    attack: 'slow-bodies',
    breaks: /closed/,
    env: 'REQUEST_TIMEOUT=3600000',
  },
  {
    limit: 'closing idle connections at the limit',
    attack: 'idle-at-the-limit',
    breaks: /fail/,
    edits: [
      {
        file: 'src/http/protocol/connection/connection-registry.ts',
        from: 'if (this.#hasNoneWaiting) return false;',
        to: 'if (this.#limit > 0) return false;',
      },
    ],
  },
  {
    limit: 'closing incomplete requests at the limit',
    attack: 'unfinished-at-the-limit',
    breaks: /fail/,
    edits: [
      {
        file: 'src/http/protocol/connection/connection-registry.ts',
        from: '({ mayBeEvicted }) => mayBeEvicted',
        to: '({ isIdle }) => isIdle',
      },
    ],
  },
  {
    limit: 'closing unread responses at the limit',
    attack: 'unread-at-the-limit',
    breaks: /fail/,
    edits: [
      {
        file: 'src/http/protocol/connection/http-connection.ts',
        from: 'this.#ticks : this.sendProgress.confirmedStalledTicks',
        to: 'this.#ticks : 0',
      },
    ],
  },
  {
    limit: 'the share of an owner',
    attack: 'one-owner',
    breaks: /fail/,
    edits: [
      {
        file: 'src/http/overload/concurrency-limit.ts',
        from: 'OWNER_SHARE = 0.75',
        to: 'OWNER_SHARE = 1',
      },
    ],
  },
  {
    limit: 'the separate limit of tokens that were valid before',
    attack: 'guessed-tokens',
    breaks: /fail/,
    edits: [
      {
        file: 'src/http/auth/authentication.ts',
        from: 'owner === undefined ? {',
        to: 'owner !== null ? {',
      },
    ],
  },
  {
    limit: 'the limit of JWTs that are verified',
    attack: 'forged-tokens',
    breaks: /p99/,
    edits: [
      {
        file: 'src/http/app.ts',
        from: 'lookups.run(key, () => verifications(work, key))',
        to: 'work()',
      },
    ],
  },
  {
    limit: 'the handler time per event-loop iteration',
    attack: 'many-costly-bodies',
    breaks: /p99/,
    edits: [
      { file: 'src/http/overload/loop-budget.ts', from: 'BUDGET_MS = 5;', to: 'BUDGET_MS = 3_600_000;' },
    ],
  },
  {
    limit: 'the pages that all lists together read at once',
    attack: 'whole-lists',
    breaks: /p99/,
    engine: 'postgres',
    edits: [
      {
        file: 'src/http/plants/list-plants.ts',
        from: 'CONCURRENT_READS = 4',
        to: 'CONCURRENT_READS = 1_000',
      },
    ],
  },
  {
    limit: 'cancelling work for disconnected clients',
    attack: 'hung-up-get',
    breaks: /idle/,
    // Otherwise most lists wait for memory, and end without work.
    env: 'SEND_BUFFER_LIMIT=68719476736',
    edits: [
      {
        file: 'src/http/plants/list-plants.ts',
        from: 'if (response.destroyed || response.isHalfClosed) throw new ClientGone();',
        to: '',
      },
      { file: 'src/http/send-buffer-limit.ts', from: 'if (this.isClosed) throw new ClientGone();', to: '' },
    ],
  },
  {
    limit: 'the timeout of the TLS handshake',
    attack: 'tls-silent',
    breaks: /closed/,
    env: 'HEADER_TIMEOUT=600000,REQUEST_TIMEOUT=3600000',
  },
  {
    limit: 'a stop that closes connections without a handshake',
    attack: 'stop-silent-tls',
    breaks: /stop|exit/,
    env: 'HEADER_TIMEOUT=600000,REQUEST_TIMEOUT=3600000',
    edits: [
      {
        file: 'src/http/protocol/connection/connection-registry.ts',
        from: 'for (const { socket } of this.#handshakes.values()) socket.destroy();',
        to: '',
      },
    ],
  },
  {
    limit: 'a log that never blocks',
    attack: 'unread-output',
    breaks: /p99|stop|exit|fail/,
    edits: [
      {
        file: 'src/observability/log-writer.ts',
        from: "if (codeOf(error) !== 'EAGAIN') reportFailure(error);\n      return false;",
        to: 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);\n      return writeBuffered();',
      },
    ],
  },
];

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const COPIED = ['bench', 'bin', 'build', 'client', 'src', 'test', 'package.json', 'tsconfig.json'];

/** Copies the program and its tests, and lifts a limit in the copy. Resolves to its folder. */
async function copyWithout({ edits = [] }: LiftedLimit): Promise<string> {
  const folder = await freshFolder();
  for (const name of COPIED) await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  for (const { file, from, to } of edits) {
    const source = await readFile(join(folder, file), 'utf8');
    if (!source.includes(from)) throw new Error(`${file} has no text ${from}`);
    await writeFile(join(folder, file), source.replaceAll(from, to));
  }
  return folder;
}

/** Attacks a service without a limit. Resolves to the verdict of the attack. */
async function verdictOn(lifted: LiftedLimit): Promise<string> {
  const folder = await copyWithout(lifted);
  const args = ['--only', lifted.attack, '--engine', lifted.engine ?? 'sqlite', '--bare', 'no'];
  if (lifted.env !== undefined) args.push('--env', lifted.env);
  if (lifted.isShort) args.push('--short', 'yes');
  const child = spawn(process.execPath, [join(folder, 'test/long/abuse/abuse.ts'), ...args], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  // The prefix may choose other attacks too.
  const own = output.split(/^(?=\S+ \()/m).find((part) => part.startsWith(`${lifted.attack} (`)) ?? '';
  return /^ {2}(BROKEN: .*|holds)$/m.exec(own)?.[1] ?? `no verdict:\n${output}`;
}

if (import.meta.main) {
  const values = readFlags(
    'Lifts one limit of the service after the other, and checks that the attack on it breaks its bounds.',
    { only: { type: 'string', takes: 'NAME', about: 'prefix of the attacks to run' } },
  );
  const missed: string[] = [];
  for (const lifted of LIFTED.filter(({ attack }) => attack.startsWith(values.only ?? ''))) {
    const verdict = await verdictOn(lifted);
    const isNoticed = verdict.startsWith('BROKEN') && lifted.breaks.test(verdict);
    if (!isNoticed) missed.push(lifted.limit);
    process.stdout.write(
      `${isNoticed ? 'noticed' : 'MISSED '}  ${lifted.limit} (${lifted.attack}): ${verdict}\n`,
    );
  }
  process.stdout.write(
    missed.length === 0 ? 'each lifted limit was noticed\n' : `missed: ${missed.join('; ')}\n`,
  );
  if (missed.length > 0) process.exitCode = 1;
}
