-- What stands below some summaries: their direct children, and every message of their whole trees, each with its
-- relevance to a query, 0 to 1, most relevant first and oldest first among equals. A word weighs the more the fewer rows
-- below the same summary hold it, so that the order depends on nothing but what stands there.
WITH RECURSIVE walk AS (
    SELECT id AS top, id, 0 AS depth FROM ros_summaries WHERE id = ANY (%(tops)s::uuid[])
    UNION
    SELECT w.top, s.id, w.depth + 1 FROM walk AS w JOIN ros_summaries AS s ON s.parent_id = w.id WHERE w.depth < 10
), tree AS MATERIALIZED (
    -- Each once, also where a damaged tree goes round in circles.
    SELECT top, id, min(depth) AS depth FROM walk GROUP BY top, id
), asked AS MATERIALIZED (
    SELECT ros_query_terms(%(query)s) AS lexemes
), below AS MATERIALIZED (
    SELECT t.top, 'summary' AS source, s.id, s.seq, s.earliest_at AS at,
           tsvector_to_array(ts_filter(setweight(s.content_tsv, 'A', q.lexemes), '{a}')) AS words
    FROM tree AS t JOIN ros_summaries AS s ON s.id = t.id CROSS JOIN asked AS q
    WHERE t.depth = 1
    UNION ALL
    SELECT t.top, 'message', m.id, m.seq, m.created_at,
           tsvector_to_array(ts_filter(setweight(m.content_tsv, 'A', q.lexemes), '{a}'))
    FROM tree AS t
    JOIN ros_summary_sources AS x ON x.summary_id = t.id
    JOIN ros_messages AS m ON m.id = x.message_id
    CROSS JOIN asked AS q
), weights AS MATERIALIZED (
    SELECT b.top, w.word, ln(1 + (n.total - count(*) + 0.5) / (count(*) + 0.5)) AS weight
    FROM below AS b
    JOIN (SELECT top, count(*) AS total FROM below GROUP BY top) AS n ON n.top = b.top
    CROSS JOIN LATERAL unnest(b.words) AS w (word)
    GROUP BY b.top, w.word, n.total
), scored AS (
    SELECT b.top, b.source, b.id, b.seq, b.at,
           round((coalesce((SELECT sum(w.weight) FROM weights AS w WHERE w.top = b.top AND w.word = ANY (b.words)), 0)
                  / greatest((SELECT sum(w.weight) FROM weights AS w WHERE w.top = b.top), 1e-9))::numeric, 6) AS relevance
    FROM below AS b
), ranked AS (
    SELECT *, count(*) OVER (PARTITION BY top) AS total,
           row_number() OVER (PARTITION BY top ORDER BY relevance DESC, at, source, seq) AS place
    FROM scored
)
SELECT r.top, r.place, r.total, r.source, r.id, r.at, least(r.relevance, 1)::float8 AS relevance,
       m.role, m.tool_name, s.kind, s.latest_at, s.message_count,
       coalesce(m.agent, array_to_string(s.agents, ', ')) AS agent,
       left(concat_ws(E'\n', nullif(btrim(coalesce(m.content, s.content)), ''), nullif(btrim(m.tool_result), '')),
            %(looked_through)s) AS body,
       length(concat_ws(E'\n', nullif(btrim(coalesce(m.content, s.content)), ''), nullif(btrim(m.tool_result), '')))
           AS characters
FROM ranked AS r
LEFT JOIN ros_messages AS m ON r.source = 'message' AND m.id = r.id
LEFT JOIN ros_summaries AS s ON r.source = 'summary' AND s.id = r.id
WHERE r.place > %(after)s AND r.place <= %(after)s + %(rows)s
ORDER BY array_position(%(tops)s::uuid[], r.top), r.place
