-- The rows of the final list, whole, with the accepted tags of their sessions.
WITH hits AS MATERIALIZED (
    SELECT 'message' AS source, m.seq, m.content, m.tool_result, m.agent,
           coalesce(m.metadata ->> 'kind', 'speech') AS kind, m.conversation_id, c.session_key, c.title,
           NULL::timestamptz AS earliest_at, NULL::integer AS message_count
    FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
    WHERE m.seq = ANY (%(messages)s::bigint[])
    UNION ALL
    SELECT 'summary', s.seq, s.content, NULL, coalesce(nullif(array_to_string(s.agents, ', '), ''), c.agent), s.kind,
           s.conversation_id, c.session_key, c.title, s.earliest_at, s.message_count
    FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
    WHERE s.seq = ANY (%(summaries)s::bigint[])
), tags AS MATERIALIZED (
    SELECT t.conversation_id, array_agg(t.tag ORDER BY t.tag) AS tags
    FROM ros_accepted_tags(ARRAY(SELECT DISTINCT h.conversation_id FROM hits AS h)) AS t
    GROUP BY t.conversation_id
)
SELECT h.*, coalesce(t.tags, '{}') AS tags FROM hits AS h LEFT JOIN tags AS t USING (conversation_id)
