/**
 * What an operation on one plant did, as its client saw it. Every creation gives the plant a name of its own, so that
 * a list tells whose creation it shows. The outcome of an `unknown…` operation never arrived: it may take effect at any
 * time after it was sent, or never.
 */
export type Effect =
  | { readonly kind: 'created'; readonly name: string }
  | { readonly kind: 'idTaken' }
  | { readonly kind: 'deleted' }
  | { readonly kind: 'absent' }
  /** A list showed the plant by this name, or did not show it. */
  | { readonly kind: 'listed'; readonly name: string | undefined }
  | { readonly kind: 'unknownCreation'; readonly name: string }
  | { readonly kind: 'unknownDeletion' };

/** One operation on the plant that `key` stands for, with the times between which it must have taken effect. */
export interface Operation {
  readonly key: string;
  readonly effect: Effect;
  readonly sentAt: number;
  readonly answeredAt: number;
}

/** The plant with the key has no order of operations that explains `operation`; `around` is what it overlaps with. */
interface Violation {
  readonly key: string;
  readonly operation: Operation;
  readonly around: readonly Operation[];
}

/** A plant as an observer sees it: its name, or undefined when it is absent. */
type State = string | undefined;

/** A way the history may have gone so far: the state, and which of the operations under way took effect already. */
interface Course {
  readonly state: State;
  readonly done: readonly number[];
}

/** Courses to follow at once, at most; beyond it a history is too tangled to be judged. */
const MAX_COURSES = 200_000;

/**
 * Looks for an order of the operations that a single store could have carried them out in, each between its sending and
 * its answer (linearizability; Herlihy and Wing, ACM TOPLAS 12(3), 1990). It is local, so each key is judged by itself.
 * Undefined when there is one for every key, otherwise the first key without.
 *
 * The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, JPDC 17, 1993) as Lowe refined it
 * (Testing for Linearizability, Concurrency and Computation 29(4), 2017): it goes along the answers in time, lets the
 * operations under way take effect only when an answer demands it, and follows each pair of state and set once.
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

// At one and the same time a sending comes first: what touches counts as overlapping.
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

/** All courses in which the operation has taken effect, with it taken off the set. */
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
    if (seen.size > MAX_COURSES) throw new Error('the history is too tangled to be judged');
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
 * Lets all operations take effect that only observe the state as it is. A course loses nothing by that:
 * whatever could follow before can follow after.
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
      // One is as good as another.
      if (triedUnknownDeletion) continue;
      triedUnknownDeletion = true;
    }
    next.push({ state: stateAfter(effect), done: [...done, index].sort((a, b) => a - b) });
  }
  return next;
}

/** Whether a store in this state answers so. An unknown write that would change nothing may as well not happen. */
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

/** A violation for people: the operations around it, one a line, times in milliseconds. */
export function describeViolation({ key, operation, around }: Violation): string {
  const lines = around.map((other) => {
    const mark = other === operation ? '→' : ' ';
    const answered = isUnknown(other.effect) ? 'never' : other.answeredAt.toFixed(2);
    return `${mark} ${other.sentAt.toFixed(2)} … ${answered} ${JSON.stringify(other.effect)}`;
  });
  return [`no order explains what happened to plant ${key}:`, ...lines].join('\n');
}
