-- The summaries below one, level by level, each level oldest first, with their parents: a limit leaves out the lowest
-- and latest, and never a parent of what it keeps.
WITH RECURSIVE below AS (
    SELECT id, 1 AS depth FROM ros_summaries WHERE parent_id = %(id)s
    UNION
    SELECT s.id, b.depth + 1 FROM below AS b JOIN ros_summaries AS s ON s.parent_id = b.id WHERE b.depth < 10
)
SELECT s.parent_id, s.id, s.kind, s.earliest_at, s.latest_at, s.message_count, s.model, s.pipeline_version, s.grounding,
       left(s.content, %(length)s) AS content,
       CASE WHEN s.kind = 'leaf' THEN (SELECT count(*) FROM ros_summary_sources AS o WHERE o.summary_id = s.id)
            ELSE (SELECT count(*) FROM ros_summaries AS o WHERE o.parent_id = s.id) END AS sources
FROM below AS b JOIN ros_summaries AS s ON s.id = b.id
ORDER BY b.depth, s.earliest_at, s.seq
LIMIT %(limit)s
