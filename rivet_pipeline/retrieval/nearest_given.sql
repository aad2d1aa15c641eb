-- The nearest of the given rows and of those whose vectors have changed since the codes were made, each by its best
-- chunk. `newest` is the newest piece: another one than the search has seen may have taken changes in.
SELECT {alias}.seq, 1 - min(e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})) AS similarity,
       (SELECT max(v.id) FROM ros_vector_pieces AS v WHERE v.model_id = {model} AND v.source = {kind}) AS newest
FROM {table} AS {alias}
JOIN ros_embeddings AS e ON e.model_id = {model} AND e.owner_kind = {kind} AND e.owner_id = {alias}.id
WHERE {alias}.seq = ANY (%(rows)s::bigint[] || ARRAY(
    SELECT o.seq FROM ros_vector_changes AS c JOIN {table} AS o ON o.id = c.owner_id
    WHERE c.model_id = {model} AND c.source = {kind}))
  AND {filter}
GROUP BY {alias}.seq
ORDER BY similarity DESC, {alias}.seq
LIMIT %(wanted)s
