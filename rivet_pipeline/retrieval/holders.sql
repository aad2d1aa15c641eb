-- Rows within the filters that hold every key of an identifier, newest first. Not more than :most: what so many hold is
-- found by its words as well.
SELECT seq FROM (
    SELECT {alias}.seq, {at} AS at FROM {table} AS {alias}
    WHERE {identifiers} @> %(keys)s::integer[] AND {filter}
    LIMIT %(most)s
) AS found
ORDER BY at DESC, seq DESC
