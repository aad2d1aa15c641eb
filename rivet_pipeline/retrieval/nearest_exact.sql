-- The nearest rows of a scope, each by its best chunk, every one compared.
SELECT {alias}.seq, 1 - min(e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})) AS similarity
FROM {table} AS {alias}
JOIN ros_embeddings AS e ON e.model_id = {model} AND e.owner_kind = {kind} AND e.owner_id = {alias}.id
WHERE {filter}
GROUP BY {alias}.seq
ORDER BY similarity DESC, {alias}.seq
LIMIT %(wanted)s
