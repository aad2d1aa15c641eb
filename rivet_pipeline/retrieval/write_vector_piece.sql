-- Codes the vectors of one range of owners as they are now; no row for a range without any. The sort carries the bits,
-- not the vectors, and the number of bits that stands before them is cut off.
INSERT INTO ros_vector_pieces (model_id, source, number, rows, offsets, codes)
SELECT %(model)s, %(source)s, %(number)s, count(*),
       -- The low byte first: numbers are sent with the high one first.
       string_agg(substring(c.place FROM 2 FOR 1) || substring(c.place FROM 1 FOR 1), ''::bytea ORDER BY c.seq, c.chunk),
       string_agg(c.code, ''::bytea ORDER BY c.seq, c.chunk)
FROM (
    SELECT o.seq, e.chunk, e.code, int2send((o.seq - %(first)s::bigint)::smallint) AS place
    FROM {table} AS o
    CROSS JOIN LATERAL (
        SELECT v.chunk, substring(bit_send(binary_quantize(l2_normalize(v.embedding) - (SELECT k.centre FROM ros_embedding_models AS k WHERE k.id = %(model)s))) FROM 5) AS code
        FROM ros_embeddings AS v
        WHERE v.model_id = %(model)s AND v.owner_kind = %(source)s AND v.owner_id = o.id
        -- Keeps this a look into the key per owner, whatever the planner believes of a table that is being filled.
        OFFSET 0
    ) AS e
    WHERE o.seq >= %(first)s AND o.seq < %(end)s
) AS c
HAVING count(*) > 0
