/**
 * SQL that makes a PostgreSQL database behave as Citus does: it rejects a statement that deletes plants of
 * several owners. The sequence `rejected` counts the rejections.
 */
export const REJECT_SEVERAL_OWNERS = `
  CREATE SEQUENCE rejected;
  CREATE FUNCTION reject_several_owners() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    IF (SELECT count(DISTINCT owner) > 1 FROM gone) THEN
      PERFORM nextval('rejected');
      RAISE EXCEPTION 'could not run distributed query with FOR UPDATE/SHARE commands' USING ERRCODE = '0A000';
    END IF;
    RETURN NULL;
  END$$;
  CREATE TRIGGER reject_several_owners AFTER DELETE ON plants REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION reject_several_owners()`;
