/** The ids of a run. All ids are distinct, within a run and between runs. */
export type Ids =
  | { readonly order: 'sequential'; readonly first: number }
  | { readonly order: 'random'; readonly seed: number; readonly lane: number };

/** A kind of request. The generator replaces `{id}` in its target, idempotency key or body with the next id. */
export interface RequestTemplate {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly target: string;
  readonly idempotencyKey?: string;
  readonly body: string;
  /** Number of requests of this kind to send before the next kind. */
  readonly times: number;
}

export interface Workload {
  readonly name: string;
  /** Kinds of requests, sent in rotation. */
  readonly requests: readonly RequestTemplate[];
  /** Returns the ids of the nth run. */
  readonly ids: (run: number) => Ids;
}

export const LISTED = 20;
export const NEW_PLANT = { name: 'Black alder', tag: 'Alnus glutinosa' };

// Number of ids for each run. No two runs share an id. No run uses the low ids (1, 2, 3 and so on) of the
// example plants. The number is not round, so that runs begin with different tokens.
const IDS_A_RUN = 100_061_803;
const FIRST_TO_DELETE = 1_000 * IDS_A_RUN;

const create: RequestTemplate = {
  method: 'POST',
  target: '/plants',
  body: `{"id":{id},"name":"${NEW_PLANT.name}","tag":"${NEW_PLANT.tag}"}`,
  times: 1,
};
const list: RequestTemplate = { method: 'GET', target: `/plants?limit=${LISTED}`, body: '', times: 1 };

export const createInOrder: Workload = {
  name: 'create, ids in order',
  requests: [create],
  ids: (run) => ({ order: 'sequential', first: (run + 1) * IDS_A_RUN }),
};

export const createAtRandom: Workload = {
  name: 'create, random ids',
  requests: [create],
  ids: (run) => ({ order: 'random', seed: ((run + 1) * 0x9e3779b1) >>> 0, lane: run }),
};

/** Creates plants with ids above all existing ones, and above those of `createAtRandom`. */
export const createBehindAll: Workload = {
  name: 'create, ids in order',
  requests: [create],
  ids: (run) => ({ order: 'sequential', first: 2 ** 45 + run * IDS_A_RUN }),
};

/** The keys are as long as those of the client, and increase as they do. */
export const createWithKey: Workload = {
  name: 'create, with a key',
  requests: [{ ...create, idempotencyKey: '{id}-3735928559-3735928559-3735928559' }],
  ids: createBehindAll.ids,
};

export const listOfTwenty: Workload = {
  name: `list of ${LISTED}`,
  requests: [list],
  ids: createInOrder.ids,
};

/** Lists without plants: the cost of such a request, if its token is not cached, is mainly that of the token. */
export const lookUpOfToken: Workload = {
  name: 'empty list, token not cached',
  requests: [{ ...list, target: '/plants?limit=0' }],
  ids: createInOrder.ids,
};

export const listUnderWrites: Workload = {
  name: `list of ${LISTED}, every tenth request a create`,
  requests: [{ ...list, times: 9 }, create],
  ids: createInOrder.ids,
};

const requestsToDelete: Workload['requests'] = [
  { method: 'DELETE', target: '/plants/{id}', body: '', times: 1 },
];

export const deleteInOrder: Workload = {
  name: 'delete',
  requests: requestsToDelete,
  ids: (run) => ({ order: 'sequential', first: FIRST_TO_DELETE + run * IDS_A_RUN }),
};

/** Deletes plants whose random ids lie between the ids of the stored plants. */
export const deleteAtRandom: Workload = {
  name: 'delete, random ids',
  requests: requestsToDelete,
  ids: createAtRandom.ids,
};
