/**
 * The effect of an operation on one plant, as its client saw it. Every create uses a distinct name, so that
 * the name in a list identifies the create. An `unknown…` operation got no response: it may take effect at
 * any time after it was sent, or never.
 */
export type Effect =
  | { readonly kind: 'created'; readonly name: string }
  | { readonly kind: 'idTaken' }
  | { readonly kind: 'deleted' }
  | { readonly kind: 'absent' }
  /**
   * A list was read. `name` is the name of the plant in the list; undefined if the list did not have the
   * plant.
   */
  | { readonly kind: 'listed'; readonly name: string | undefined }
  | { readonly kind: 'unknownCreation'; readonly name: string }
  | { readonly kind: 'unknownDeletion' };

/** An operation on the plant `key`, which took effect between `sentAt` and `answeredAt`. */
export interface Operation {
  readonly key: string;
  readonly effect: Effect;
  readonly sentAt: number;
  readonly answeredAt: number;
}

/**
 * A violation of linearizability: no order of the operations explains the response of `operation`. `around`
 * lists the operations that overlap `operation` in time.
 */
interface Violation {
  readonly key: string;
  readonly operation: Operation;
  readonly around: readonly Operation[];
}

/** The visible state of a plant: its name, or undefined when it does not exist. */
type State = string | undefined;

/**
 * A possible order of the operations so far. It has the resulting state of the plant, and the pending
 * operations that already took effect.
 */
interface Course {
  readonly state: State;
  readonly done: readonly number[];
}

/**
 * Max number of possible orders that the check visits for one response. If a history needs more, the check
 * fails without a verdict.
 */
const MAX_COURSES = 200_000;

/**
 * Checks a history for linearizability (Herlihy and Wing, ACM TOPLAS 12(3), 1990). In a linearizable history,
 * each operation takes effect at one moment between its request and its response. Linearizability is a local
 * property, so each key is checked separately. Returns undefined for a linearizable history, otherwise the
 * first violation. The algorithm is that of Wing and Gong (Testing and Verifying Concurrent Objects, JPDC 17,
 * 1993). Lowe improved the algorithm (Testing for Linearizability, Concurrency and Computation 29(4), 2017).
 * The algorithm processes responses in the order of time. A pending operation takes effect only when a
 * response requires it. Each possible order is visited once.
 */
export function findViolation(history: readonly Operation[]): Violation | undefined {
  for (const [key, operations] of Map.groupBy(history, (operation) => operation.key)) {
    const operation = findUnexplained(operations);
    if (operation !== undefined) return { key, operation, around: overlapping(operations, operation) };
  }
  return undefined;
}

function findUnexplained(operations: readonly Operation[]): Operation | undefined {
  const pending = new Map<number, Operation>();
  let courses: readonly Course[] = [{ state: undefined, done: [] }];
  for (const { index, operation, isAnswer } of eventsOf(operations)) {
    if (!isAnswer) {
      pending.set(index, operation);
    } else {
      courses = coursesThrough(index, courses, pending);
      if (courses.length === 0) return operation;
      pending.delete(index);
    }
  }
  return undefined;
}

interface Event {
  readonly at: number;
  readonly index: number;
  readonly operation: Operation;
  readonly isAnswer: boolean;
}

// At equal times, sorts a request before a response. So two operations overlap when one ends as the other
// begins.
function eventsOf(operations: readonly Operation[]): Event[] {
  const events = operations.flatMap((operation, index): Event[] => {
    const sent = { at: operation.sentAt, index, operation, isAnswer: false };
    return isUnknown(operation.effect)
      ? [sent]
      : [sent, { at: operation.answeredAt, index, operation, isAnswer: true }];
  });
  return events.sort((a, b) => a.at - b.at || Number(a.isAnswer) - Number(b.isAnswer));
}

function isUnknown({ kind }: Effect): boolean {
  return kind === 'unknownCreation' || kind === 'unknownDeletion';
}

/**
 * Returns the possible orders in which the operation took effect before its response. In these orders, it is
 * no longer pending.
 */
function coursesThrough(
  index: number,
  courses: readonly Course[],
  pending: ReadonlyMap<number, Operation>,
): Course[] {
  const seen = new Set<string>();
  const through = new Map<string, Course>();
  const open = [...courses];
  for (let course = open.pop(); course !== undefined; course = open.pop()) {
    const { state, done } = withObservers(course, pending);
    const name = nameOf({ state, done });
    if (seen.has(name)) continue;
    seen.add(name);
    if (seen.size > MAX_COURSES) throw new Error('the history has too many possible courses to be judged');
    if (done.includes(index)) {
      const rest = { state, done: done.filter((other) => other !== index) };
      through.set(nameOf(rest), rest);
    } else {
      open.push(...nextCourses({ state, done }, pending));
    }
  }
  return [...through.values()];
}

function nameOf({ state, done }: Course): string {
  return `${done.join(' ')} ${state === undefined ? '-' : `+${state}`}`;
}

/**
 * Applies at once all pending operations that change nothing and whose response fits the current state. Since
 * they change nothing, the search loses no possible order.
 */
function withObservers({ state, done }: Course, pending: ReadonlyMap<number, Operation>): Course {
  const observers = [...pending].filter(
    ([index, { effect }]) => !done.includes(index) && isObserver(effect) && fits(effect, state),
  );
  return { state, done: [...done, ...observers.map(([index]) => index)].sort((a, b) => a - b) };
}

function isObserver({ kind }: Effect): boolean {
  return kind === 'idTaken' || kind === 'absent' || kind === 'listed';
}

function nextCourses({ state, done }: Course, pending: ReadonlyMap<number, Operation>): Course[] {
  let triedUnknownDeletion = false;
  const next: Course[] = [];
  for (const [index, { effect }] of pending) {
    if (done.includes(index) || isObserver(effect) || !fits(effect, state)) continue;
    if (effect.kind === 'unknownDeletion') {
      // All deletions of this plant without a response have the same effect, so the search tries only one.
      if (triedUnknownDeletion) continue;
      triedUnknownDeletion = true;
    }
    next.push({ state: stateAfter(effect), done: [...done, index].sort((a, b) => a - b) });
  }
  return next;
}

/**
 * True if a store in `state` gives the response of `effect`. For a write without a response: true if the
 * write changes the state.
 */
function fits(effect: Effect, state: State): boolean {
  switch (effect.kind) {
    case 'created':
    case 'absent':
    case 'unknownCreation':
      return state === undefined;
    case 'idTaken':
    case 'deleted':
    case 'unknownDeletion':
      return state !== undefined;
    case 'listed':
      return state === effect.name;
  }
}

function stateAfter(effect: Effect): State {
  return effect.kind === 'created' || effect.kind === 'unknownCreation' ? effect.name : undefined;
}

function overlapping(operations: readonly Operation[], { sentAt, answeredAt }: Operation): Operation[] {
  return operations
    .filter((other) => other.sentAt <= answeredAt && (isUnknown(other.effect) || other.answeredAt >= sentAt))
    .toSorted((a, b) => a.sentAt - b.sentAt);
}

/** Formats a violation: the overlapping operations, one per line, with times in milliseconds. */
export function describeViolation({ key, operation, around }: Violation): string {
  const lines = around.map((other) => {
    const mark = other === operation ? '→' : ' ';
    const answered = isUnknown(other.effect) ? 'never' : other.answeredAt.toFixed(2);
    return `${mark} ${other.sentAt.toFixed(2)} … ${answered} ${JSON.stringify(other.effect)}`;
  });
  return [`no order explains what happened to plant ${key}:`, ...lines].join('\n');
}
