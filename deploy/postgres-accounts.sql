-- Creates the two accounts of docs/postgresql.md, "Accounts". The image of PostgreSQL runs this with psql when it sets
-- up a new volume, in the database of compose.yaml. The passwords are those of the URLs in deploy/secrets.

\set ON_ERROR_STOP on
\set owner_password `sed 's|^[^:]*://[^:]*:\([^@]*\)@.*|\1|' /run/secrets/migration-url`
\set app_password `sed 's|^[^:]*://[^:]*:\([^@]*\)@.*|\1|' /run/secrets/database-url`

CREATE ROLE plants_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE plants_app LOGIN PASSWORD :'app_password';

ALTER DATABASE plant_store OWNER TO plants_owner;
REVOKE ALL ON DATABASE plant_store FROM PUBLIC;
GRANT CONNECT ON DATABASE plant_store TO plants_app;

-- For every table that plants_owner will create, so that no migration needs a grant.
ALTER DEFAULT PRIVILEGES FOR ROLE plants_owner IN SCHEMA public
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO plants_app;
