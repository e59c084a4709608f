import { charactersIn } from './rows.ts';
import {
  type EngineLoad,
  type LockKey,
  NothingStored,
  type Outcome,
  StatementRejected,
  type StoreLoad,
  StoreOverloaded,
  type Write,
} from './store.ts';

/** Max writes in one batch. */
export const MAX_BATCH = 1_024;
/** Max queued writes. */
export const MAX_WAITING = 10_000;

/**
 * Characters of an owner's new plants in one batch, after which the owner's other writes wait for the next batch. On a slow
 * disk, the writes of others would wait for seconds behind megabytes of one owner.
 */
export const OWNER_CHARACTERS = 256 * 1024;

/** Min writes in progress for which `inHalves` applies. Smaller halves would share an fsync among too few writes. */
const MIN_HALVED = 32;

/**
 * Ticks, each a quarter of `maxWaitMs`, after which a queued write times out. Ticks, not clock time: after a suspension,
 * pending answers are read first.
 */
const LATE_TICKS = 5;

/** Share by which each batch lowers the peak of writes in progress, so that halves follow the load. */
const PEAK_DECAY = 1 / 256;

interface Waiting {
  readonly write: Write;
  readonly keys: readonly LockKey[];
  /** Characters of a new plant; 0 for other writes. */
  readonly characters: number;
  /** Value of the tick counter when the write was queued. */
  readonly since: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

interface Batch {
  readonly members: readonly Waiting[];
  /** For each lock key, the kind of the writes that have it. */
  readonly kindOf: ReadonlyMap<string, Write['kind']>;
  /** Start of the batch, in milliseconds of the monotonic clock. */
  readonly begun: number;
}

export interface GroupCommitOptions {
  readonly commit: (batch: readonly Write[]) => Promise<readonly Outcome[]>;
  /** Max writes in one batch; MAX_BATCH by default. */
  readonly maxBatch?: number;
  /** Max batches in flight. If the value is 1, the writes of one owner run in the order of their arrival. */
  readonly maxInFlight: number;
  /**
   * Called at each batch. While it returns true, writes commit in two alternating halves: a batch starts immediately
   * when half of the writes in progress are queued. The event loop handles one half during the commit of the other.
   */
  readonly inHalves?: () => boolean;
  /** Max queued writes; MAX_WAITING by default. Further writes are rejected with StoreOverloaded. */
  readonly maxWaiting?: number;
  /**
   * Approximate max milliseconds that a write is queued, not counting a suspension of the process; no limit by
   * default. After this time, the write is rejected with NothingStored.
   */
  readonly maxWaitMs?: number;
  /**
   * Returns the lock keys of a write, one for each row that it changes. Writes with the same lock key run one after the
   * other, in the order of their arrival: in separate batches or, if the key permits, as neighbours in one batch. This
   * prevents deadlocks between batches.
   */
  readonly keysOf?: (write: Write) => readonly LockKey[];
}

interface GroupCommit {
  write(write: Write): Promise<Outcome>;
  load(): Omit<StoreLoad, keyof EngineLoad>;
  /** Rejects new writes. Resolves when all writes that came before this call are finished. */
  close(): Promise<void>;
}

/**
 * Collects writes in batches, so that many writes share one fsync. While one batch commits, further writes
 * form the next batch (group commit; Gray and Reuter, Transaction Processing, 1993, §9.4.7).
 */
export function createGroupCommit(options: GroupCommitOptions): GroupCommit {
  const { commit, maxBatch = MAX_BATCH, maxInFlight, maxWaiting = MAX_WAITING } = options;
  const { maxWaitMs, inHalves = () => false, keysOf = () => [] } = options;
  let waiting: Waiting[] = [];
  let ticks = 0;
  /** The batches in flight, oldest first. */
  const inFlight = new Set<Batch>();
  let writesInFlight = 0;
  /** Number of writes in progress, queued or in flight, at the recent peak. */
  let peak = 0;
  let halving = false;
  let scheduled = false;
  let closed = false;
  const idle = Promise.withResolvers<void>();
  const watch =
    maxWaitMs === undefined ? undefined : setInterval(rejectLate, maxWaitMs / 4, maxWaitMs).unref();

  function write(write: Write): Promise<Outcome> {
    if (closed) return Promise.reject(new NothingStored('the store is closing'));
    if (waiting.length >= maxWaiting)
      return Promise.reject(new StoreOverloaded(`${maxWaiting} writes are already queued`));
    return new Promise((resolve, reject) => {
      const characters = write.kind === 'createPlant' ? charactersIn(write) : 0;
      waiting.push({ write, keys: keysOf(write), characters, since: ticks, resolve, reject });
      peak = Math.max(peak, waiting.length + writesInFlight);
      proceed();
    });
  }

  function proceed(): void {
    if (waiting.length === 0 || inFlight.size >= maxInFlight) return;
    if (waiting.length >= earlySize()) void launch(earlySize());
    else schedule();
  }

  /** Returns the number of queued writes with which a batch starts immediately: half of those in progress, if halving. */
  function earlySize(): number {
    return halving && peak >= MIN_HALVED ? Math.ceil(peak / 2) : Number.POSITIVE_INFINITY;
  }

  // Delays the batch until all requests of this event-loop iteration and of the next one are handled. In the next one, clients
  // that just got a response send their next request.
  function schedule(): void {
    if (scheduled) return;
    scheduled = true;
    setImmediate(setImmediate, launchScheduled);
  }

  function launchScheduled(): void {
    scheduled = false;
    if (inFlight.size < maxInFlight) void launch();
  }

  async function launch(limit = maxBatch): Promise<void> {
    const batch = takeBatch(Math.min(limit, maxBatch));
    const { length } = batch.members;
    if (length === 0) return;
    inFlight.add(batch);
    writesInFlight += length;
    peak -= peak * PEAK_DECAY;
    halving = inHalves();
    proceed();
    await settle(batch.members);
    writesInFlight -= length;
    inFlight.delete(batch);
    proceed();
    endWhenIdle();
  }

  function endWhenIdle(): void {
    if (!closed || waiting.length > 0 || inFlight.size > 0) return;
    clearInterval(watch);
    idle.resolve();
  }

  // Rejects writes that were queued for longer than `ms`. The database never received these writes.
  function rejectLate(ms: number): void {
    ticks += 1;
    const latest = ticks - LATE_TICKS;
    const late = waiting.filter(({ since }) => since <= latest);
    if (late.length === 0) return;
    waiting = waiting.filter(({ since }) => since > latest);
    for (const { reject } of late) reject(new NothingStored(`the write was queued for more than ${ms} ms`));
    endWhenIdle();
  }

  /**
   * Takes queued writes for a batch. A write stays queued if it has a lock key of a write in flight, or of one in this batch
   * with which it may not share the key. It also stays queued if it has a lock key of an earlier write that stays queued, or
   * if its owner has OWNER_CHARACTERS in this batch.
   */
  function takeBatch(limit: number): Batch {
    const members: Waiting[] = [];
    const left: Waiting[] = [];
    const others = [...inFlight];
    const keysLeft = new Set<string>();
    const kindOf = new Map<string, Write['kind']>();
    const charactersOf = new Map<string, number>();
    for (const member of waiting) {
      const { write, keys, characters } = member;
      const owner = 'owner' in write ? write.owner : '';
      const before = charactersOf.get(owner) ?? 0;
      const mustWait =
        before >= OWNER_CHARACTERS ||
        keys.some(({ name, isShared }) => {
          const kind = kindOf.get(name);
          const isFree = kind === undefined || (isShared && kind === write.kind);
          return !isFree || keysLeft.has(name) || others.some((other) => other.kindOf.has(name));
        });
      if (mustWait || members.length === limit) {
        left.push(member);
        for (const { name } of keys) keysLeft.add(name);
      } else {
        members.push(member);
        for (const { name } of keys) kindOf.set(name, write.kind);
        if (characters > 0) charactersOf.set(owner, before + characters);
      }
    }
    waiting = left;
    return { members, kindOf, begun: performance.now() };
  }

  async function settle(batch: Batch['members']): Promise<void> {
    try {
      const outcomes = await commit(batch.map((member) => member.write));
      for (const [index, member] of batch.entries()) {
        const outcome = outcomes[index];
        if (outcome === undefined) member.reject(new Error('the engine returned no outcome for a write'));
        else member.resolve(outcome);
      }
    } catch (error: unknown) {
      if (error instanceof StatementRejected && batch.length > 1) {
        const half = batch.length >> 1;
        await settle(batch.slice(0, half));
        await settle(batch.slice(half));
      } else {
        for (const member of batch) member.reject(error);
      }
    }
  }

  function close(): Promise<void> {
    closed = true;
    endWhenIdle();
    return idle.promise;
  }

  function load(): ReturnType<GroupCommit['load']> {
    const [oldest] = inFlight;
    const oldestBatchMs = oldest === undefined ? 0 : performance.now() - oldest.begun;
    return { writesWaiting: waiting.length, writesInFlight, oldestBatchMs };
  }

  return { write, load, close };
}
