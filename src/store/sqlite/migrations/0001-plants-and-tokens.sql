CREATE TABLE plants (
  owner TEXT NOT NULL,
  id INTEGER NOT NULL,
  name TEXT NOT NULL,
  tag TEXT,
  PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

-- Digest and outcome of the first request with each idempotency key. Times are milliseconds since the epoch.
CREATE TABLE idempotency_keys (
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  digest BLOB NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('created', 'idTaken')),
  first_used_at INTEGER NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);

CREATE TABLE tokens (
  owner TEXT NOT NULL,
  id TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE,
  name TEXT NOT NULL,
  scopes TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  last_used_at INTEGER,
  PRIMARY KEY (owner, id)
) STRICT;

CREATE UNIQUE INDEX tokens_by_id ON tokens (id);
