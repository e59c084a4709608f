import { execFileSync } from 'node:child_process';

/**
 * Prints a bill of materials (CycloneDX) of the packages that the bundle contains. `npm sbom --omit dev` also drops
 * packages that development packages need too (npm/cli#7909), so this removes what npm marks as development.
 */

interface Component {
  readonly 'bom-ref': string;
  readonly properties?: readonly { readonly name: string; readonly value: string }[];
}

interface Bom {
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

const text = execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx'], {
  encoding: 'utf8',
  maxBuffer: 64 * 1024 * 1024,
  shell: process.platform === 'win32',
});
const { components, dependencies, ...rest }: Bom = JSON.parse(text);
const isForDevelopment = ({ properties = [] }: Component): boolean =>
  properties.some(({ name, value }) => name === 'cdx:npm:package:development' && value === 'true');
const removed = new Set(components.filter(isForDevelopment).map((one) => one['bom-ref']));
const kept = (ref: string): boolean => !removed.has(ref);
const bom = {
  ...rest,
  components: components.filter((one) => kept(one['bom-ref'])),
  dependencies: dependencies
    .filter(({ ref }) => kept(ref))
    .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter(kept) })),
};
process.stdout.write(`${JSON.stringify(bom, null, 2)}\n`);
