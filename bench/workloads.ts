/** The order in which a run takes its ids; all of them are distinct, within a run and between runs. */
export type Ids =
  | { readonly order: 'sequential'; readonly first: number }
  | { readonly order: 'random'; readonly seed: number; readonly lane: number };

/** Where `{id}` stands in a target or a body, the generator puts the next id. */
export interface Workload {
  readonly name: string;
  /** The name of the part on the command line; several workloads can share one. */
  readonly part: Part;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly target: string;
  readonly body: string;
  readonly expectedStatus: number;
  /** The ids of the nth run. */
  readonly ids: (run: number) => Ids;
}

export const parts = ['create', 'list', 'delete'] as const;
export type Part = (typeof parts)[number];

export const LISTED = 20;

// Each run has ids of its own, apart from those of other runs and of the plants that lists show, which count from 1.
const IDS_A_RUN = 100_000_000;
const FIRST_TO_CREATE = IDS_A_RUN;
const FIRST_TO_DELETE = 1_000 * IDS_A_RUN;

const newPlant = '{"id":{id},"name":"Black alder","tag":"Alnus glutinosa"}';

export const workloads: readonly Workload[] = [
  {
    name: 'create, ids in order',
    part: 'create',
    method: 'POST',
    target: '/plants',
    body: newPlant,
    expectedStatus: 200,
    ids: (run) => ({ order: 'sequential', first: FIRST_TO_CREATE + run * IDS_A_RUN }),
  },
  {
    name: 'create, random ids',
    part: 'create',
    method: 'POST',
    target: '/plants',
    body: newPlant,
    expectedStatus: 200,
    ids: (run) => ({ order: 'random', seed: ((run + 1) * 0x9e3779b1) >>> 0, lane: run }),
  },
  {
    name: `list of ${LISTED}`,
    part: 'list',
    method: 'GET',
    target: `/plants?limit=${LISTED}`,
    body: '',
    expectedStatus: 200,
    ids: () => ({ order: 'sequential', first: 1 }),
  },
  {
    name: 'delete',
    part: 'delete',
    method: 'DELETE',
    target: '/plants/{id}',
    body: '',
    expectedStatus: 204,
    ids: (run) => ({ order: 'sequential', first: FIRST_TO_DELETE + run * IDS_A_RUN }),
  },
];
