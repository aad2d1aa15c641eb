-- By source, the pieces of a model's codes that are in force, and how many owners' vectors changed since (counted up to
-- :most).
-- The planner must not see the values (hence `asked`): so it makes one plan for all of them.
WITH asked AS MATERIALIZED (
    SELECT %(model)s::integer AS model, %(sources)s::text[] AS sources, %(most)s::bigint AS most
)
SELECT s.source, m.coded, m.centre::real[] AS centre,
       (SELECT oid FROM pg_database WHERE datname = current_database()) AS database, p.pieces, p.chunks, p.newest,
       (SELECT count(*) FROM (
           SELECT 1 FROM ros_vector_changes AS c WHERE c.model_id = m.id AND c.source = s.source LIMIT (SELECT most FROM asked)
       ) AS waiting) AS changed
FROM ros_embedding_models AS m
CROSS JOIN unnest((SELECT sources FROM asked)) AS s (source)
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(v.token::text ORDER BY v.number), '{}') AS pieces,
           coalesce(sum(v.rows), 0) AS chunks, max(v.id) AS newest
    FROM ros_vector_pieces AS v WHERE v.model_id = m.id AND v.source = s.source) AS p
WHERE m.id = (SELECT model FROM asked)
