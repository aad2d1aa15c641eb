-- A summary and those above it, the topmost first. UNION, not UNION ALL: a circle, which must not be, would end.
WITH RECURSIVE chain AS (
    SELECT id, parent_id, 0 AS height FROM ros_summaries WHERE id = %(id)s
    UNION
    SELECT s.id, s.parent_id, c.height + 1 FROM chain AS c JOIN ros_summaries AS s ON s.id = c.parent_id
    WHERE c.height < 10
)
SELECT s.id, s.kind, s.earliest_at, s.latest_at, s.message_count, s.model, s.pipeline_version, s.grounding,
       left(s.content, %(length)s) AS content,
       CASE WHEN s.kind = 'leaf' THEN (SELECT count(*) FROM ros_summary_sources AS o WHERE o.summary_id = s.id)
            ELSE (SELECT count(*) FROM ros_summaries AS o WHERE o.parent_id = s.id) END AS sources
FROM chain AS c JOIN ros_summaries AS s ON s.id = c.id
ORDER BY c.height DESC
