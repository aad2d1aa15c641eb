-- Adds a batch of accesses; counts stop where scoring stops counting.
INSERT INTO ros_access AS a (kind, id, access_count, last_accessed_at)
SELECT n.kind, n.id, least(n.accesses, %(most)s), n.at
FROM unnest(%(kinds)s::text[], %(ids)s::uuid[], %(counts)s::integer[], %(times)s::timestamptz[])
     WITH ORDINALITY AS n (kind, id, accesses, at, place)
ORDER BY n.place
ON CONFLICT (kind, id) DO UPDATE
SET access_count = greatest(a.access_count, least(a.access_count + excluded.access_count, %(most)s)),
    last_accessed_at = greatest(a.last_accessed_at, excluded.last_accessed_at)
