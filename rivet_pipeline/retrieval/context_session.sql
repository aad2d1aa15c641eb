-- A session's last spoken messages, and its newest summaries that have none above them and can be trusted: together
-- these tell of the whole of it, each part once.
WITH mine AS MATERIALIZED (
    SELECT id, session_key, title FROM ros_conversations
    WHERE session_hash = md5(%(session_key)s::text)::uuid AND session_key = %(session_key)s::text
      AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
)
(SELECT 'message' AS source, m.id, m.seq, m.created_at AS at, NULL::timestamptz AS earliest_at, m.agent, m.role,
        NULL AS kind, left(m.content, %(longest)s) AS content, length(m.content) AS characters,
        c.session_key, c.title, NULL::integer AS message_count
 FROM mine AS c CROSS JOIN LATERAL (
     SELECT * FROM ros_messages
     WHERE conversation_id = c.id AND role <> 'tool' AND tool_name IS NULL AND btrim(content) <> ''
       AND coalesce(metadata ->> 'kind', 'speech') = 'speech'
     ORDER BY created_at DESC, seq DESC LIMIT %(messages)s
 ) AS m
 ORDER BY m.created_at DESC, m.seq DESC LIMIT %(messages)s)
UNION ALL
(SELECT 'summary', s.id, s.seq, s.latest_at, s.earliest_at, array_to_string(s.agents, ', '), NULL, s.kind,
        left(s.content, %(longest)s), length(s.content), c.session_key, c.title, s.message_count
 FROM mine AS c CROSS JOIN LATERAL (
     SELECT * FROM ros_summaries AS s
     WHERE s.conversation_id = c.id AND s.parent_id IS NULL AND ros_is_trusted(s)
     ORDER BY s.latest_at DESC, s.seq DESC LIMIT %(summaries)s
 ) AS s
 ORDER BY s.latest_at DESC, s.seq DESC LIMIT %(summaries)s)
