import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { describe, it } from 'node:test';
import { crashRounds, type State } from '../../long/crash.ts';

const ROUNDS = 12;
const LOAD_MS = { from: 200, to: 300 };

interface Fault {
  readonly name: string;
  /** Selects the ids to inject the fault into. */
  readonly fits: (state: State) => boolean;
  /** The statement that injects the fault; its parameter is the id. */
  readonly sql: string;
  readonly found: RegExp;
}

const faults: readonly Fault[] = [
  {
    name: 'lost acknowledged create',
    fits: (state) => state !== null && state.tag === null,
    sql: 'DELETE FROM plants WHERE id = ?',
    found: /^plant \d+ was acknowledged as created, and is missing$/,
  },
  {
    name: 'undone acknowledged deletion',
    fits: (state) => state === null,
    sql: "INSERT INTO plants (owner, id, name) VALUES ('crash', ?, 'a plant that was deleted')",
    found: /^plant \d+ was acknowledged as deleted, and exists: .*a plant that was deleted/,
  },
  {
    name: 'half-written plant',
    fits: (state) => state !== null && state.tag !== null,
    sql: 'UPDATE plants SET tag = NULL WHERE id = ?',
    found: /^plant \d+ is .*"tag":null.* and was sent as .*"tag":"tag of write/,
  },
  {
    name: 'plant that no client wrote',
    fits: () => true,
    sql: "INSERT INTO plants (owner, id, name) VALUES ('crash', -1 - ?, 'a stranger')",
    found: /^plant -\d+ exists and was never written$/,
  },
  {
    name: 'plant of another owner',
    fits: () => true,
    sql: "INSERT INTO plants (owner, id, name) VALUES ('zoe', ?, 'a stranger')",
    found: /^plant \d+ of zoe appeared$/,
  },
];

describe('the service under kill -9', { concurrency: true }, () => {
  it('12 crashes → no acknowledged write lost, none half done', async (t) => {
    const { rounds, acknowledged, doubtful, repeated, violations } = await crashRounds({
      rounds: ROUNDS,
      seed: 20,
      loadMs: LOAD_MS,
      atLeast: 20,
      report: (line) => t.diagnostic(line),
    });
    assert.deepEqual(violations, []);
    assert.equal(rounds, ROUNDS);
    assert.ok(acknowledged >= ROUNDS * 20, `only ${acknowledged} writes were acknowledged`);
    assert.ok(doubtful > 0, 'no kill interrupted a write');
    assert.ok(repeated > 0, 'no create was repeated with its key');
  });

  it('the checker finds every injected fault and no other', async () => {
    const { violations } = await crashRounds({
      rounds: 1,
      seed: 1,
      loadMs: LOAD_MS,
      atLeast: 500,
      report: () => undefined,
      beforeComparison: plantFaults,
    });
    for (const { name, found } of faults) {
      assert.equal(
        violations.filter((line) => found.test(line)).length,
        1,
        `${name}: ${violations.join('\n')}`,
      );
    }
    assert.equal(violations.length, faults.length, violations.join('\n'));
  });
});

function plantFaults(file: string, certain: ReadonlyMap<bigint, State>): void {
  using db = new DatabaseSync(file);
  for (const { name, fits, sql } of faults) {
    const [id] = [...certain].find(([, state]) => fits(state)) ?? [];
    assert.ok(id !== undefined, `the load left no plant for ${name}`);
    db.prepare(sql).run(id);
  }
}
