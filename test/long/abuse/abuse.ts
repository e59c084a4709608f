import { join } from 'node:path';
import { freshFolder } from '../../support/engines.ts';
import { needOpenFiles } from '../../support/process-resources.ts';
import { readFlags } from '../../support/script-flags.ts';
import { startPostgres } from '../../support/servers/postgres-server.ts';
import type { Attack, Bounds } from './attack.ts';
import { catalogue } from './catalogue.ts';
import { measureAbuse } from './measure.ts';
import { type Grounds, isRunning, prepareGrounds, serveBare, USUAL_STOCK } from './target.ts';
import { abuseFaults, describeAbuse, isMachineBusy, slacken, USUAL_BOUNDS, withoutSpeed } from './verdict.ts';

/** Node.js and OpenSSL take about 50 KiB per TLS connection, and up to 64 KiB for the bytes that they encrypt. */
const TLS_CONNECTION_BYTES = 128 * 1024;
const ENDED = 'the service has ended';
/** A TLS handshake takes one to two milliseconds of CPU. The timeouts of the last connection begin after all others. */
const TLS_HANDSHAKE_MS = 2.5;

interface AbuseOptions {
  readonly grounds: Grounds;
  readonly isTls: boolean;
  /** Seconds of measurement before the attack. */
  readonly calmSeconds: number;
  /** Factor on all promised times, since other programs share the cores; 1 by default. */
  readonly slack?: number;
  /** Additional variables of the service. */
  readonly env?: Readonly<Record<string, string>>;
  readonly report: (line: string) => void;
}

/** Attacks the service once. Resolves to the bounds that it broke, in words. */
export async function abuse(attack: Attack, options: AbuseOptions): Promise<readonly string[]> {
  const { grounds, isTls, calmSeconds, slack = 1, env, report } = options;
  needOpenFiles(attack.connections);
  const overTls = isTls || attack.rawToTls === true;
  const inPlain = { ...USUAL_BOUNDS, ...attack.bounds };
  const usual = overTls ? boundsOverTls(inPlain, attack.connections) : inPlain;
  report(`${attack.name} (${grounds.engine}, ${overTls ? 'https' : 'http'}): ${attack.about}`);
  report(`  guards     ${attack.guards}`);
  const target = await grounds.serve(attack, overTls, env);
  const figures = await measureAbuse(target, attack, calmSeconds).catch((error: unknown) => {
    if (isRunning(target.pid)) throw error;
    return undefined;
  });
  if (figures === undefined) {
    report(`  BROKEN: ${ENDED}`);
    return [ENDED];
  }
  for (const line of describeAbuse('service', figures)) report(line);
  const isBusy = slack > 1 && isMachineBusy(figures);
  if (isBusy) report('  the machine is busy: bounds that depend on speed are not judged');
  const max = attack.connections;
  const min = overTls ? minHandshakes(attack) : max;
  const faults = isBusy
    ? abuseFaults(figures, withoutSpeed(usual), { min: 0, max })
    : abuseFaults(figures, slacken(usual, slack), { min, max });
  report(faults.length === 0 ? '  holds' : `  BROKEN: ${faults.join('; ')}`);
  return faults;
}

function boundsOverTls(bounds: Bounds, connections: number): Bounds {
  const { memory, closedMs } = bounds;
  return {
    ...bounds,
    memory: memory + connections * TLS_CONNECTION_BYTES,
    ...(closedMs !== undefined && { closedMs: closedMs + connections * TLS_HANDSHAKE_MS }),
  };
}

/**
 * Returns the min number of attackers whose handshakes end. The service may close a connection above its limit before the
 * handshake ends: how many depends on the speed of the machine.
 */
function minHandshakes({ connections, env }: Attack): number {
  return Math.min(connections, Number(env?.MAX_CONNECTIONS ?? connections));
}

/** Runs the same attack on a bare node:http server, for comparison. */
async function abuseBare(attack: Attack, folder: string, calmSeconds: number): Promise<readonly string[]> {
  const target = await serveBare(join(folder, `${attack.name}.log`), attack.stock ?? USUAL_STOCK);
  return describeAbuse('bare node:http', await measureAbuse(target, attack, calmSeconds));
}

/** Returns the short form of an attack; undefined when it has none. */
export function shortFormOf({ short, ...attack }: Attack): Attack | undefined {
  if (short === undefined) return undefined;
  return { ...attack, ...short, bounds: { ...attack.bounds, ...short.bounds } };
}

if (import.meta.main) {
  const values = readFlags(
    'Attacks the service in many ways. Measures what other clients notice and what the service spends.',
    {
      only: { type: 'string', takes: 'NAME', about: 'prefixes of the attacks to run, separated by commas' },
      engine: {
        type: 'string',
        takes: 'sqlite|postgres',
        about: 'the engine; both where it matters by default',
      },
      tls: { type: 'string', takes: 'yes|no', default: 'no', about: 'over TLS' },
      short: {
        type: 'string',
        takes: 'yes|no',
        default: 'no',
        about: 'run the short form, as in `npm run test:all`',
      },
      env: {
        type: 'string',
        takes: 'NAME=VALUE',
        about: 'variables of the service, separated by commas; lifting a limit must break a bound',
      },
      bare: { type: 'string', takes: 'yes|no', default: 'yes', about: 'also attack a bare node:http server' },
    },
  );
  const write = (line: string): void => void process.stdout.write(`${line}\n`);
  const prefixes = values.only?.split(',');
  const attacks = catalogue
    .flatMap((attack) => (values.short === 'yes' ? (shortFormOf(attack) ?? []) : attack))
    .filter(({ name }) => prefixes === undefined || prefixes.some((prefix) => name.startsWith(prefix)));
  await using ending = new AsyncDisposableStack();
  const lifetime = { after: (work: () => Promise<void>) => void ending.defer(work) };
  const folder = await freshFolder();
  const calmSeconds = values.short === 'yes' ? 1 : 3;
  const env = Object.fromEntries(
    (values.env?.split(',') ?? []).map((pair) => {
      const [name = '', ...rest] = pair.split('=');
      return [name, rest.join('=')];
    }),
  );
  const broken: string[] = [];
  for (const engine of ['sqlite', 'postgres']) {
    if (values.engine !== undefined && values.engine !== engine) continue;
    const chosen = attacks.filter(({ bothEngines }) => bothEngines || engine === (values.engine ?? 'sqlite'));
    if (chosen.length === 0) continue;
    const server = engine === 'postgres' ? await startPostgres() : undefined;
    if (server !== undefined) ending.defer(() => server.remove());
    const grounds = await prepareGrounds(lifetime, engine, server?.url());
    for (const attack of chosen) {
      const faults = await abuse(attack, {
        grounds,
        isTls: values.tls === 'yes',
        calmSeconds,
        env,
        report: write,
      });
      if (faults.length > 0) broken.push(`${attack.name} (${engine})`);
      if (attack.bare && engine === 'sqlite' && values.tls === 'no' && values.bare === 'yes')
        for (const line of await abuseBare(attack, folder, calmSeconds)) write(line);
      write('');
    }
  }
  write(broken.length === 0 ? 'all bounds hold' : `broken: ${broken.join(', ')}`);
  if (broken.length > 0) process.exitCode = 1;
}
