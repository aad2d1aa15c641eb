-- What redoing the stale summaries of some levels and days takes, by level. Tokens are what the same row took before
-- where the service counted them, else characters divided by `characters_per_token`; of the answers, what this model
-- gave at that level on average, if it has made any. `may_follow`: what stands above and becomes stale if a text changes.
WITH stale AS MATERIALIZED (
    SELECT id, kind, day, reason, waits FROM ros_stale_summaries
    WHERE day >= coalesce(%(since)s::date, '-infinity') AND day < coalesce(%(before)s::date, 'infinity')
), chosen AS (
    SELECT t.*, s.parent_id,
           coalesce(
               CASE WHEN jsonb_typeof(s.metadata -> 'prompt_tokens') = 'number'
                    THEN nullif((s.metadata ->> 'prompt_tokens')::numeric, 0) END,
               (coalesce(CASE WHEN jsonb_typeof(s.metadata -> 'input_characters') = 'number'
                              THEN (s.metadata ->> 'input_characters')::numeric END, below.characters, 0)
                + (%(instructions)s::jsonb ->> t.kind)::numeric) / %(characters_per_token)s) AS input_tokens,
           coalesce(
               past.output_tokens,
               CASE WHEN jsonb_typeof(s.metadata -> 'completion_tokens') = 'number'
                    THEN nullif((s.metadata ->> 'completion_tokens')::numeric, 0) END,
               length(s.content)::numeric / %(characters_per_token)s) AS output_tokens
    FROM stale AS t
    JOIN ros_summaries AS s ON s.id = t.id
    LEFT JOIN LATERAL (
        SELECT sum(b.characters) AS characters
        FROM (
            SELECT length(m.content) + length(coalesce(m.tool_result, '')) AS characters
            FROM ros_summary_sources AS x JOIN ros_messages AS m ON m.id = x.message_id WHERE x.summary_id = s.id
            UNION ALL
            SELECT length(k.content) FROM ros_summaries AS k WHERE k.parent_id = s.id
        ) AS b
        WHERE NOT s.metadata ? 'input_characters'
    ) AS below ON true
    LEFT JOIN (
        SELECT kind, avg((metadata ->> 'completion_tokens')::numeric) AS output_tokens
        FROM (
            SELECT kind, metadata, row_number() OVER (PARTITION BY kind ORDER BY seq DESC) AS place
            FROM ros_summaries
            WHERE model = %(model)s AND jsonb_typeof(metadata -> 'completion_tokens') = 'number'
              AND metadata -> 'completion_tokens' <> '0'
        ) AS known
        WHERE place <= 1000
        GROUP BY kind
    ) AS past ON past.kind = t.kind
    WHERE t.kind = ANY(%(kinds)s::text[])
), branches AS (
    SELECT DISTINCT c.parent_id AS id FROM chosen AS c WHERE c.kind = 'leaf' AND c.parent_id IS NOT NULL
), roots AS (
    SELECT c.parent_id AS id FROM chosen AS c WHERE c.kind = 'branch' AND c.parent_id IS NOT NULL
    UNION
    SELECT s.parent_id FROM branches AS b JOIN ros_summaries AS s ON s.id = b.id WHERE s.parent_id IS NOT NULL
), following AS (
    SELECT s.kind, count(*) AS rows
    FROM (SELECT id FROM branches UNION SELECT id FROM roots) AS above JOIN ros_summaries AS s ON s.id = above.id
    WHERE NOT EXISTS (SELECT 1 FROM stale AS t WHERE t.id = above.id)
    GROUP BY s.kind
)
SELECT levels.kind, count(c.id) AS rows, count(c.id) FILTER (WHERE c.waits) AS waiting, count(DISTINCT c.day) AS days,
       count(c.id) FILTER (WHERE c.reason = 'requested') AS requested,
       count(c.id) FILTER (WHERE c.reason = 'version') AS version,
       count(c.id) FILTER (WHERE c.reason = 'model') AS model,
       count(c.id) FILTER (WHERE c.reason = 'source') AS source,
       coalesce(round(sum(c.input_tokens)), 0)::bigint AS input_tokens,
       coalesce(round(sum(c.output_tokens)), 0)::bigint AS output_tokens,
       coalesce(max(f.rows), 0) AS may_follow
FROM unnest(ARRAY['leaf', 'branch', 'root']) WITH ORDINALITY AS levels (kind, place)
LEFT JOIN chosen AS c ON c.kind = levels.kind
LEFT JOIN following AS f ON f.kind = levels.kind
GROUP BY levels.kind, levels.place
ORDER BY levels.place
