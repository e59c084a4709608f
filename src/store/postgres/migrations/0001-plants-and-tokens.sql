CREATE TABLE plants (
  owner text NOT NULL,
  id bigint NOT NULL,
  name text NOT NULL,
  tag text,
  PRIMARY KEY (owner, id)
);

-- Digest and outcome of the first request with each idempotency key. Times are milliseconds since the epoch.
CREATE TABLE idempotency_keys (
  owner text NOT NULL,
  key text NOT NULL,
  digest bytea NOT NULL,
  outcome text NOT NULL CHECK (outcome IN ('created', 'idTaken')),
  first_used_at bigint NOT NULL,
  PRIMARY KEY (owner, key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (first_used_at);

CREATE TABLE tokens (
  owner text NOT NULL,
  id text NOT NULL,
  digest bytea NOT NULL,
  name text NOT NULL,
  scopes text NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  last_used_at bigint,
  PRIMARY KEY (owner, id)
);

CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);

CREATE UNIQUE INDEX tokens_by_id ON tokens (id);
