import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import manifest from '../../package.json' with { type: 'json' };

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const REGISTRY = 'https://registry.npmjs.org/';

/** Licences that require only attribution. */
const PERMISSIVE = /^(?:MIT|ISC|0BSD|BSD-[23]-Clause|Apache-2\.0|BlueOak-1\.0\.0|CC0-1\.0|Zlib|Python-2\.0)$/;

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly hasInstallScript?: boolean;
  /** True for a workspace of this repository. */
  readonly link?: boolean;
}

type Lock = Readonly<Record<string, Locked>>;

function readLock(file: string): Lock {
  const { packages } = JSON.parse(readFileSync(new URL(file, import.meta.url), 'utf8'));
  return Object.fromEntries(
    Object.entries<Locked>(packages).filter(([path, { link }]) => path.includes('node_modules/') && !link),
  );
}

const nameOf = (path: string): string => path.split('node_modules/').at(-1) ?? path;

/** Lists the faults of a manifest and a lock file, one line each. */
function faultsOf(
  wanted: Readonly<Record<string, string>>,
  mayRunScripts: readonly string[],
  lock: Lock,
): readonly string[] {
  const loose = Object.entries(wanted).filter(([, version]) => !/^\d+\.\d+\.\d+(?:-[\w.]+)?$/.test(version));
  const locked = Object.entries(lock).flatMap(
    ([path, { resolved, integrity, license, dev, hasInstallScript }]) => {
      const name = nameOf(path);
      const licences = (license ?? '').replace(/[()]/g, '').split(/ (?:AND|OR) /);
      return [
        ...(integrity?.startsWith('sha512-') ? [] : [`${path} has no SHA-512`]),
        ...((resolved?.startsWith(REGISTRY) ?? true) ? [] : [`${path} is not from the registry`]),
        ...(hasInstallScript && !mayRunScripts.includes(name)
          ? [`${path} would run a script at install`]
          : []),
        ...(dev || licences.every((one) => PERMISSIVE.test(one)) ? [] : [`${path} is under ${license}`]),
      ];
    },
  );
  return [...loose.map(([name, version]) => `${name}@${version} is not exact`), ...locked];
}

const wanted = { ...manifest.dependencies, ...manifest.devDependencies };
const mayRunScripts = Object.keys(manifest.allowScripts);
const lock = readLock('../../package-lock.json');

test('versions are exact, hashes SHA-512, licences permissive, and scripts at install allowed by name', () => {
  assert.ok(Object.keys(lock).length > 100);
  assert.deepEqual(faultsOf(wanted, mayRunScripts, lock), []);
});

test('each of these faults is found', () => {
  const sound: Locked = { version: '1.0.0', integrity: 'sha512-x', license: 'MIT' };
  const { integrity, ...unhashed } = sound;
  for (const [faulty, fault] of [
    [unhashed, /no SHA-512/],
    [{ ...sound, integrity: 'sha1-x' }, /no SHA-512/],
    [{ ...sound, resolved: 'git+ssh://git@github.com/a/b.git#1' }, /not from the registry/],
    [{ ...sound, hasInstallScript: true }, /script at install/],
    [{ ...sound, license: 'AGPL-3.0-only' }, /under AGPL/],
    [{ ...sound, license: 'MIT AND GPL-3.0-only' }, /under MIT AND GPL/],
  ] as const) {
    const faults = faultsOf({}, [], { 'node_modules/a/node_modules/@b/c': faulty });
    assert.equal(faults.length, 1);
    assert.match(faults.join(), fault);
  }
  for (const version of ['^1.0.0', '1.x', 'latest', 'file:../a', 'github:a/b'])
    assert.equal(faultsOf({ a: version }, [], {}).length, 1, version);
});

test('the installed packages equal the locked ones', () => {
  for (const [path, { version, integrity }] of Object.entries(
    readLock('../../node_modules/.package-lock.json'),
  ))
    assert.deepEqual([version, integrity], [lock[path]?.version, lock[path]?.integrity], path);
});

test('the notices of the script of /docs are of the installed version of Scalar; else: npm run renew:notices', () => {
  const notices = readFileSync(new URL('../../build/api-reference-notices.txt', import.meta.url), 'utf8');
  assert.match(notices, /^The script of the page \/docs is that of @scalar\/fastify-api-reference (\S+), /);
  assert.equal(
    / (\d+\.\d+\.\d+), /.exec(notices)?.[1],
    manifest.devDependencies['@scalar/fastify-api-reference'],
  );
});

interface Component {
  readonly name: string;
  readonly version: string;
  readonly scope?: string;
  readonly cpe?: string;
  readonly hashes?: readonly { readonly alg: string }[];
  readonly licenses?: readonly object[];
}

interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: { readonly name: string } };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** Development packages whose content a release has: Node in the executable, and the script of the page /docs. */
const SHIPPED = ['node_modules/node', 'node_modules/@scalar/fastify-api-reference'];

test('npm run sbom → CycloneDX of exactly what a release contains, with hashes and licences', async () => {
  const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'sbom'], {
    cwd: ROOT,
    maxBuffer: 64 * 1024 * 1024,
  });
  const { bomFormat, metadata, components, dependencies }: Bom = JSON.parse(stdout);
  assert.deepEqual([bomFormat, metadata.component.name], ['CycloneDX', manifest.name]);
  const toRun = components.map(({ name, version }) => `${name}@${version}`);
  const lockedToRun = Object.entries(lock).filter(
    ([path, { dev = false }]) => !dev || SHIPPED.includes(path),
  );
  assert.deepEqual(
    [...new Set(toRun)].sort(),
    [...new Set(lockedToRun.map(([path, { version }]) => `${nameOf(path)}@${version}`))].sort(),
  );
  for (const { name, hashes, licenses } of components)
    assert.ok(hashes?.[0]?.alg === 'SHA-512' && (licenses?.length ?? 0) > 0, name);
  const node = components.find(({ name }) => name === 'node');
  assert.equal(node?.scope, 'required');
  assert.equal(node.cpe, `cpe:2.3:a:nodejs:node.js:${manifest.devDependencies.node}:*:*:*:*:*:*:*`);
  const refs = new Set(dependencies.map(({ ref }) => ref));
  for (const { ref, dependsOn } of dependencies)
    for (const other of dependsOn) assert.ok(refs.has(other), `${ref} depends on ${other}`);
});
