-- What stands directly above messages and summaries, whether what is above left them out (`uncovered`), and what stands
-- directly below the summaries.
SELECT x.message_id AS id, x.summary_id AS above, x.message_id = ANY (s.uncovered) AS uncovered, '{}'::uuid[] AS below
FROM ros_summary_sources AS x JOIN ros_summaries AS s ON s.id = x.summary_id
WHERE x.message_id = ANY (%(messages)s::uuid[])
UNION ALL
SELECT s.id, s.parent_id, coalesce(s.id = ANY (p.uncovered), false),
       CASE s.kind WHEN 'leaf' THEN ARRAY(SELECT message_id FROM ros_summary_sources WHERE summary_id = s.id)
                   ELSE ARRAY(SELECT id FROM ros_summaries WHERE parent_id = s.id) END
FROM ros_summaries AS s LEFT JOIN ros_summaries AS p ON p.id = s.parent_id
WHERE s.id = ANY (%(summaries)s::uuid[])
