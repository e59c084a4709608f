-- SQLite reads whole rows of `plants`, with all their text, to find a key. The JSON of a large plant stands here.
CREATE TABLE large_plants (
  large_id INTEGER PRIMARY KEY,
  json TEXT NOT NULL
) STRICT;

-- The row of a large plant in `plants` has its key, this number and empty fields.
ALTER TABLE plants ADD COLUMN large_id INTEGER;

CREATE TRIGGER delete_large_plant AFTER DELETE ON plants WHEN OLD.large_id IS NOT NULL BEGIN
  DELETE FROM large_plants WHERE large_id = OLD.large_id;
END;
