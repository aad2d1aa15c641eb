-- The summaries of a conversation from the top level down, each level oldest first. Of a tree of more than `whole`
-- summaries only those leaves that overlap a period.
SELECT s.parent_id, s.id, s.kind, s.earliest_at, s.latest_at, s.message_count, s.model, s.pipeline_version, s.grounding,
       left(s.content, %(length)s) AS content,
       CASE WHEN s.kind = 'leaf' THEN (SELECT count(*) FROM ros_summary_sources AS o WHERE o.summary_id = s.id)
            ELSE (SELECT count(*) FROM ros_summaries AS o WHERE o.parent_id = s.id) END AS sources,
       a.total
FROM ros_summaries AS s
CROSS JOIN (SELECT count(*) AS total FROM ros_summaries WHERE conversation_id = %(conversation)s) AS a
WHERE s.conversation_id = %(conversation)s
  AND (s.kind <> 'leaf' OR a.total <= %(whole)s
       OR (s.latest_at >= %(since)s::timestamptz AND s.earliest_at <= %(until)s::timestamptz))
ORDER BY s.depth DESC, s.earliest_at, s.seq
LIMIT 600
