import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { ServiceMonitor } from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { Job } from 'kubernetes-models/batch/v1/Job';
import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1/NetworkPolicy';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1/PodDisruptionBudget';
import { Service } from 'kubernetes-models/v1/Service';
import manifest from '../../package.json' with { type: 'json' };
import { FORCED_EXIT_MS } from '../../src/cli/commands/serve-command.ts';
import { loadConfig } from '../../src/config.ts';
import { TIMEOUT_MS } from '../../src/store/postgres/migrate.ts';
import {
  assertVariables,
  listOf,
  mapOf,
  ROOT,
  read,
  readYaml,
  textOf,
  type YamlMap,
} from '../support/deploy-files.ts';
import { freshFolder } from '../support/engines.ts';
import { startService } from '../support/service.ts';

/** Classes that validate a resource by the schema of its kind. */
const models = new Map<string, { readonly apiVersion: string; readonly prototype: { validate(): void } }>(
  Object.entries({ Deployment, Job, NetworkPolicy, PodDisruptionBudget, Service, ServiceMonitor }),
);

const FOLDER = 'deploy/kubernetes';
const resources = readdirSync(join(ROOT, FOLDER)).flatMap((file) => readYaml(join(FOLDER, file)));

function resource(kind: string, name = 'plant-store'): YamlMap {
  const found = resources.find((one) => one.kind === kind && mapOf(one.metadata).name === name);
  assert.ok(found !== undefined, `there is no ${kind} ${name}`);
  return found;
}

const specOf = (one: YamlMap): YamlMap => mapOf(one.spec);
const podOf = (one: YamlMap): YamlMap => mapOf(mapOf(specOf(one).template).spec);
const containerOf = (one: YamlMap): YamlMap => mapOf(listOf(podOf(one).containers)[0]);

function environmentOf(one: YamlMap): Record<string, string> {
  const pairs = listOf(containerOf(one).env).map(mapOf);
  return Object.fromEntries(pairs.map(({ name, value }) => [textOf(name), textOf(value)]));
}

/** The environment without the file of the database URL, which only a cluster has. */
function settingsOf(one: YamlMap): Record<string, string> {
  const { DATABASE_URL_FILE: _, ...settings } = environmentOf(one);
  return settings;
}

/** The port of the pods that a probe or a service names. */
function portOf(name: unknown): unknown {
  const ports = listOf(containerOf(resource('Deployment')).ports).map(mapOf);
  return ports.find((port) => port.name === name)?.containerPort;
}

/**
 * Returns what is wrong with a resource. The schemas allow unknown members, such as misspelt ones. A validator reads
 * exactly the members of its schema, so those that it does not read are unknown.
 */
function faultsOf(one: YamlMap): readonly string[] {
  const model = models.get(String(one.kind));
  if (model === undefined || model.apiVersion !== one.apiVersion)
    return [`no schema of ${one.apiVersion} ${one.kind}`];
  const unread = new Set<string>();
  try {
    model.prototype.validate.call(noteReads(one, '', unread));
  } catch (error: unknown) {
    return [String(error)];
  }
  return [...unread];
}

/** Wraps a value. `unread` has the paths of its members that were not read yet. */
function noteReads<T extends object>(value: T, path: string, unread: Set<string>): T {
  const members = new Map<string | symbol, unknown>();
  for (const [key, member] of Object.entries(value)) {
    const at = `${path}.${key}`;
    unread.add(at);
    members.set(key, isObject(member) ? noteReads(member, at, unread) : member);
  }
  return new Proxy(value, {
    get: (target, key, receiver) => {
      unread.delete(`${path}.${String(key)}`);
      return members.has(key) ? members.get(key) : Reflect.get(target, key, receiver);
    },
  });
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

describe('Kubernetes manifests', () => {
  test('follow the schemas of Kubernetes and the Prometheus Operator', () => {
    assert.deepEqual(new Set(resources.map(({ kind }) => kind)), new Set(models.keys()));
    for (const one of resources) assert.deepEqual(faultsOf(one), [], String(one.kind));
  });

  test('a wrong type, a missing member, a misspelt member and an unknown kind are found', () => {
    const deployment = resource('Deployment');
    const container = { ...containerOf(deployment), livenesProbe: {} };
    const template = {
      ...mapOf(specOf(deployment).template),
      spec: { ...podOf(deployment), containers: [container] },
    };
    for (const [faulty, fault] of [
      [{ ...deployment, spec: { ...specOf(deployment), replicas: 'three' } }, /replicas/],
      [{ ...deployment, spec: { template: specOf(deployment).template ?? '' } }, /selector/],
      [
        { ...deployment, spec: { ...specOf(deployment), template } },
        /^\.spec\.template\.spec\.containers\.0\.livenesProbe$/,
      ],
      [{ ...deployment, replicas: 3 }, /^\.replicas$/],
      [{ ...deployment, apiVersion: 'apps/v2' }, /no schema of apps\/v2 Deployment/],
    ] as const)
      assert.match(faultsOf(faulty).join(), fault);
  });

  test('image → this version', () => {
    for (const one of [resource('Deployment'), resource('Job', 'plant-store-migrate')])
      assert.equal(containerOf(one).image, `plant-store:${manifest.version}`);
  });

  test('environment → valid settings; the URL of the database is a mounted secret', () => {
    for (const [one, key] of [
      [resource('Deployment'), 'database-url'],
      [resource('Job', 'plant-store-migrate'), 'migration-url'],
    ] as const) {
      const { DATABASE_URL_FILE: file = '' } = environmentOf(one);
      assertVariables(environmentOf(one));
      loadConfig({}, settingsOf(one));
      const [mount] = listOf(containerOf(one).volumeMounts).map(mapOf);
      const [volume] = listOf(podOf(one).volumes).map(mapOf);
      assert.equal(dirname(file), mount?.mountPath);
      assert.equal(volume?.name, mount?.name);
      const { secretName, items, defaultMode } = mapOf(volume?.secret);
      assert.deepEqual([secretName, items, defaultMode], ['plant-store', [{ key, path: key }], 0o440]);
      assert.equal(file, `${mount?.mountPath}/${key}`);
    }
    assert.match(
      read(join(FOLDER, 'plant-store.yaml')),
      /--from-file=database-url --from-file=migration-url$/m,
    );
  });

  test('ports → those of the settings, on every address', () => {
    const config = loadConfig({}, settingsOf(resource('Deployment')));
    assert.deepEqual([portOf('http'), portOf('admin')], [config.port, config.adminPort]);
    assert.deepEqual([config.host, config.adminHost], ['0.0.0.0', '0.0.0.0']);
  });

  test('probes → answered by a healthy service, on the admin port', async (t) => {
    const service = await startService(t, `sqlite:${join(await freshFolder(), 'plants.db')}`);
    const container = containerOf(resource('Deployment'));
    for (const [probe, expected] of [
      ['startupProbe', '/live'],
      ['livenessProbe', '/live'],
      ['readinessProbe', '/ready'],
    ] as const) {
      const { path, port } = mapOf(mapOf(container[probe]).httpGet);
      assert.deepEqual([path, port], [expected, 'admin']);
      const answer = await fetch(service.adminUrl + path);
      await answer.body?.cancel();
      assert.equal(answer.status, 200, probe);
    }
  });

  test('startup probe → longer than the wait for a migration of another instance', () => {
    const { periodSeconds, failureThreshold } = mapOf(containerOf(resource('Deployment')).startupProbe);
    assert.ok(Number(periodSeconds) * Number(failureThreshold) * 1_000 > TIMEOUT_MS);
  });

  test('a stop → /ready fails for longer than the readiness probe takes, within the grace period', () => {
    const deployment = resource('Deployment');
    const { stopDelay } = loadConfig({}, settingsOf(deployment));
    const { periodSeconds, failureThreshold } = mapOf(containerOf(deployment).readinessProbe);
    assert.ok(stopDelay > Number(periodSeconds) * Number(failureThreshold) * 1_000);
    assert.ok(Number(podOf(deployment).terminationGracePeriodSeconds) * 1_000 > FORCED_EXIT_MS + stopDelay);
  });

  test('pods → no privilege, no writable file system, no access to the API', () => {
    for (const one of [resource('Deployment'), resource('Job', 'plant-store-migrate')]) {
      const { automountServiceAccountToken, securityContext } = podOf(one);
      assert.equal(automountServiceAccountToken, false);
      assert.equal(mapOf(securityContext).runAsNonRoot, true);
      assert.deepEqual(mapOf(securityContext).seccompProfile, { type: 'RuntimeDefault' });
      assert.deepEqual(containerOf(one).securityContext, {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
  });

  test('services, budget, policy and monitor → select the pods, by ports that exist', () => {
    const deployment = resource('Deployment');
    const { labels } = mapOf(mapOf(specOf(deployment).template).metadata);
    for (const selector of [
      mapOf(specOf(deployment).selector).matchLabels,
      specOf(resource('Service')).selector,
      specOf(resource('Service', 'plant-store-admin')).selector,
      mapOf(specOf(resource('PodDisruptionBudget')).selector).matchLabels,
      mapOf(specOf(resource('NetworkPolicy')).podSelector).matchLabels,
    ])
      assert.deepEqual(selector, labels);
    const ports = ['Service', 'NetworkPolicy'].flatMap((kind) =>
      resources
        .filter((one) => one.kind === kind)
        .flatMap((one) => [...JSON.stringify(one).matchAll(/"(?:targetPort|port)":"(\w+)"/g)]),
    );
    assert.ok(ports.length >= 4);
    for (const [, port] of ports) assert.ok(portOf(port) !== undefined, `no port ${port}`);
    // The job of the migration must not get requests.
    assert.notDeepEqual(
      mapOf(mapOf(specOf(resource('Job', 'plant-store-migrate')).template).metadata).labels,
      labels,
    );
  });

  test('monitor → scrapes the admin service, with the job of deploy/alerts.yaml', () => {
    const monitor = specOf(resource('ServiceMonitor'));
    const { metadata, spec } = resource('Service', 'plant-store-admin');
    const labels = mapOf(mapOf(metadata).labels);
    assert.deepEqual(mapOf(monitor.selector).matchLabels, labels);
    const [endpoint] = listOf(monitor.endpoints).map(mapOf);
    const [port] = listOf(mapOf(spec).ports).map(mapOf);
    assert.deepEqual([endpoint?.port, endpoint?.path], [port?.name, '/metrics']);
    const job = labels[textOf(monitor.jobLabel)];
    assert.deepEqual(new Set(read('deploy/alerts.yaml').match(/(?<=job=")[^"]+/g)), new Set([job]));
  });
});
