-- Codes the vectors of one range of owners as they are now; no row for a range without any. Two bits a dimension: above
-- the centre, and then those farther from it than the threshold (in deviations of a component). The sort carries the
-- bits, not the vectors, and the number of bits that stands before them is cut off.
WITH model AS MATERIALIZED (
    SELECT k.centre, k.centre + step.far AS above, k.centre - step.far AS below
    FROM ros_embedding_models AS k
    CROSS JOIN LATERAL (
        SELECT array_fill(
            (%(threshold)s::float8 * sqrt(greatest(%(least)s::float8, 1 + (k.centre <#> k.centre)) / vector_dims(k.centre)))::real,
            ARRAY[vector_dims(k.centre)])::halfvec AS far) AS step
    WHERE k.id = %(model)s
)
INSERT INTO ros_vector_pieces (model_id, source, number, rows, offsets, codes)
SELECT %(model)s, %(source)s, %(number)s, count(*),
       -- The low byte first: numbers are sent with the high one first.
       string_agg(substring(c.place FROM 2 FOR 1) || substring(c.place FROM 1 FOR 1), ''::bytea ORDER BY c.seq, c.chunk),
       string_agg(c.code, ''::bytea ORDER BY c.seq, c.chunk)
FROM (
    SELECT o.seq, e.chunk, e.code, int2send((o.seq - %(first)s::bigint)::smallint) AS place
    FROM {table} AS o
    CROSS JOIN LATERAL (
        SELECT v.chunk,
               substring(bit_send(binary_quantize(l2_normalize(v.embedding) - (SELECT centre FROM model))) FROM 5)
               || substring(bit_send(binary_quantize(l2_normalize(v.embedding) - (SELECT above FROM model))
                                     | binary_quantize((SELECT below FROM model) - l2_normalize(v.embedding))) FROM 5) AS code
        FROM ros_embeddings AS v
        WHERE v.model_id = %(model)s AND v.owner_kind = %(source)s AND v.owner_id = o.id
        -- Keeps this a look into the key per owner, whatever the planner believes of a table that is being filled.
        OFFSET 0
    ) AS e
    WHERE o.seq >= %(first)s AND o.seq < %(end)s
) AS c
HAVING count(*) > 0
