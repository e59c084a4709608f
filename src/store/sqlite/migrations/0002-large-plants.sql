-- Stores the JSON of large plants. SQLite reads whole rows of `plants` to find a key, so these rows must be
-- short.
CREATE TABLE large_plants (
  large_id INTEGER PRIMARY KEY,
  json TEXT NOT NULL
) STRICT;

-- Links a large plant to its JSON in `large_plants`. The plant's row in `plants` contains only its key (owner
-- and id) and this link; the other columns are empty.
ALTER TABLE plants ADD COLUMN large_id INTEGER;

CREATE TRIGGER delete_large_plant AFTER DELETE ON plants WHEN OLD.large_id IS NOT NULL BEGIN
  DELETE FROM large_plants WHERE large_id = OLD.large_id;
END;
