-- Moves large plants to `large_plants`. A version with only 0001 would list the moved plants as empty. This
-- migration is separate from 0002, since such a version accepts one newer migration but rejects two.
CREATE TEMP TABLE moved AS
  SELECT row_number() OVER (ORDER BY owner, id) AS large_id, owner, id
    FROM plants WHERE octet_length(name) + coalesce(octet_length(tag), 0) > 16384;

INSERT INTO large_plants (large_id, json)
  SELECT moved.large_id,
         CASE WHEN tag IS NULL THEN json_object('name', name) ELSE json_object('name', name, 'tag', tag) END
    FROM moved JOIN plants ON plants.owner = moved.owner AND plants.id = moved.id;

UPDATE plants SET name = '', tag = NULL, large_id = moved.large_id
  FROM moved WHERE plants.owner = moved.owner AND plants.id = moved.id;

DROP TABLE moved;
