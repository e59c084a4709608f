import { LRUCache } from 'lru-cache';
import type { Audit, AuditSource } from '../../observability/audit-log.ts';
import type { Store } from '../../store/store.ts';
import { type FoundToken, LAST_USE_STEP_MS } from '../../token.ts';

/** Max tokens whose last recorded use is known. */
const MAX_TOKENS = 10_000;

/**
 * Records a use of a token at `at` (milliseconds since the epoch), unless one was recorded lately. Returns the
 * earliest time to record another use. `sourceOf` returns the request for the audit of a first use.
 */
export type RecordUse = (token: FoundToken, at: number, sourceOf: () => AuditSource) => number;

interface LastUseOptions {
  readonly store: Pick<Store, 'write'>;
  readonly audit: Pick<Audit, 'tokenFirstUsed'>;
  /** Called when the service could not record that a token was used. The request continues. */
  readonly onUseNotRecorded: (error: unknown) => void;
}

export function createLastUse({ store, audit, onUseNotRecorded }: LastUseOptions): RecordUse {
  const usesRecorded = new LRUCache<string, number>({ max: MAX_TOKENS });
  const firstUsesLost = new LRUCache<string, true>({ max: MAX_TOKENS });

  return (token, at, sourceOf) => {
    const { id, lastUsedAt } = token;
    if (lastUsedAt !== null && isRecent(lastUsedAt, at)) return lastUsedAt + LAST_USE_STEP_MS;
    const recordedAt = usesRecorded.get(id) ?? lastUsedAt;
    if (recordedAt !== null && isRecent(recordedAt, at)) return recordedAt + LAST_USE_STEP_MS;
    usesRecorded.set(id, at);
    const isFirst = recordedAt === null || firstUsesLost.has(id);
    store.write({ kind: 'recordTokenUse', id, at }).then(
      (outcome) => {
        firstUsesLost.delete(id);
        // Several instances may see the first use of a token. The store returns 'done' only to the instance
        // whose write it applies, so that the first use is audited once.
        if (isFirst && outcome === 'done') audit.tokenFirstUsed(token, sourceOf());
      },
      (error: unknown) => {
        if (isFirst) firstUsesLost.set(id, true);
        onUseNotRecorded(error);
      },
    );
    return at + LAST_USE_STEP_MS;
  };
}

/** True within LAST_USE_STEP_MS of the recorded use. A later one was recorded by a fast clock, and is overwritten. */
function isRecent(recordedAt: number, at: number): boolean {
  return Math.abs(at - recordedAt) < LAST_USE_STEP_MS;
}
