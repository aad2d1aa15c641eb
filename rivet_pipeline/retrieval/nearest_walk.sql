-- The nearest chunks in the order of the model's own index. The cast, the literal model and the literal kind are the
-- index's; the literal limit lets the planner see that it is small.
SELECT {alias}.seq, 1 - (e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})) AS similarity
FROM ros_embeddings AS e
JOIN {table} AS {alias} ON {alias}.id = e.owner_id
WHERE e.model_id = {model} AND e.owner_kind = {kind} AND {filter}
ORDER BY e.embedding::halfvec({width}) <=> %(vector)s::halfvec({width})
LIMIT {chunks}
