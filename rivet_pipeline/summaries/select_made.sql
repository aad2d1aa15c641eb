-- The summaries of a level and what each is made from today, for comparison with the hash it was stored with. Those
-- that failed when they were last redone are left out until their time comes, unless all are wanted. So are those of
-- version 0, which came from elsewhere and are kept as they are until all are wanted.
SELECT s.id, s.conversation_id, c.day, s.input_hash, s.text_hash::text AS text_hash, i.ids, i.hashes,
       ros_is_trusted(s) AS trusted
FROM ros_summaries AS s
JOIN ros_conversations AS c ON c.id = s.conversation_id
CROSS JOIN LATERAL (
    SELECT array_agg(o.id::text ORDER BY o.place, o.seq) AS ids,
           array_agg(o.text_hash::text ORDER BY o.place, o.seq) AS hashes
    FROM (
        SELECT m.id, ros_captured_hash(m.text_hash, m.tool_result, m.metadata) AS text_hash,
               to_timestamp(x.ordinal) AS place, m.seq
        FROM ros_summary_sources AS x JOIN ros_messages AS m ON m.id = x.message_id
        WHERE s.kind = 'leaf' AND x.summary_id = s.id
        UNION ALL
        SELECT k.id, k.text_hash, k.earliest_at, k.seq FROM ros_summaries AS k
        WHERE s.kind <> 'leaf' AND k.parent_id = s.id
    ) AS o
) AS i
WHERE s.kind = %(kind)s
  AND (%(days)s::date[] IS NULL OR c.day = ANY(%(days)s::date[]))
  AND i.ids IS NOT NULL
  AND NOT ros_is_blocked(%(stage)s, 'service')
  AND (%(force)s OR (s.pipeline_version > 0 AND NOT ros_is_blocked(%(stage)s, s.id::text)))
ORDER BY c.day, s.conversation_id, s.earliest_at, s.seq
