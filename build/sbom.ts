import { execFileSync } from 'node:child_process';

/**
 * Prints a bill of materials (CycloneDX) of a release: the packages in the bundle, Node in the executable, and the
 * package of the script of /docs, without what that bundles. `npm sbom --omit dev` also drops packages that development
 * packages need too (npm/cli#7909), so this removes what npm marks as development.
 */

interface Component {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly scope?: string;
  readonly properties?: readonly { readonly name: string; readonly value: string }[];
}

interface Bom {
  readonly metadata: { readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

/**
 * Development packages whose content a release has. Databases of vulnerabilities know Node by its CPE, not as an npm
 * package.
 */
const SHIPPED: Readonly<Record<string, (version: string) => { readonly cpe?: string }>> = {
  node: (version) => ({ cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*` }),
  '@scalar/fastify-api-reference': () => ({}),
};

const text = execFileSync(
  'npm',
  ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--workspaces=false'],
  {
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    shell: process.platform === 'win32',
  },
);
const { metadata, components, dependencies, ...rest }: Bom = JSON.parse(text);
const isForDevelopment = ({ properties = [] }: Component): boolean =>
  properties.some(({ name, value }) => name === 'cdx:npm:package:development' && value === 'true');

function toShipped(component: Component): readonly Component[] {
  if (!isForDevelopment(component)) return [component];
  const details = SHIPPED[component.name];
  if (details === undefined) return [];
  const { properties: _, ...shipped } = component;
  return [{ ...shipped, ...details(component.version), scope: 'required' }];
}

const shipped = components.flatMap(toShipped);
const refs = new Set([metadata.component, ...shipped].map((one) => one['bom-ref']));
const bom = {
  ...rest,
  // npm names the component after the folder.
  metadata: { ...metadata, component: { ...metadata.component, name: 'plant-store' } },
  components: shipped,
  dependencies: dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) })),
};
process.stdout.write(`${JSON.stringify(bom, null, 2)}\n`);
