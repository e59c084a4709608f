/** Makes a database refuse, as Citus does, to delete plants of several owners by one statement; `refused` counts it. */
export const REFUSE_SEVERAL_OWNERS = `
  CREATE SEQUENCE refused;
  CREATE FUNCTION refuse_several_owners() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    IF (SELECT count(DISTINCT owner) > 1 FROM gone) THEN
      PERFORM nextval('refused');
      RAISE EXCEPTION 'could not run distributed query with FOR UPDATE/SHARE commands' USING ERRCODE = '0A000';
    END IF;
    RETURN NULL;
  END$$;
  CREATE TRIGGER refuse_several_owners AFTER DELETE ON plants REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_several_owners()`;
