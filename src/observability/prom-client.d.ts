// The files of prom-client that the service imports. The package's index would also load OpenTelemetry and a
// push client.
declare module 'prom-client/lib/counter.js' {
  import { Counter } from 'prom-client';
  export = Counter;
}
declare module 'prom-client/lib/gauge.js' {
  import { Gauge } from 'prom-client';
  export = Gauge;
}
declare module 'prom-client/lib/histogram.js' {
  import { Histogram } from 'prom-client';
  export = Histogram;
}
declare module 'prom-client/lib/registry.js' {
  import { Registry } from 'prom-client';
  export = Registry;
}
declare module 'prom-client/lib/metrics/*' {
  import type { Registry } from 'prom-client';

  const collect: (registry: Registry, options: { readonly eventLoopMonitoringPrecision: number }) => void;
  export = collect;
}
