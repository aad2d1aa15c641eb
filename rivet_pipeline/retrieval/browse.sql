-- One page of messages in total order.
SELECT m.id, m.seq, m.role, m.agent, m.channel, m.content, m.tool_name, m.tool_args, m.tool_result, m.metadata,
       m.created_at, m.conversation_id, c.session_key, c.title
FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
WHERE (%(agent)s::text IS NULL OR m.agent = %(agent)s::text)
  AND (%(role)s::text IS NULL OR m.role = %(role)s::text)
  AND (%(tool_name)s::text IS NULL OR m.tool_name = %(tool_name)s::text)
  AND (%(conversation)s::uuid IS NULL OR m.conversation_id = %(conversation)s::uuid)
  AND (%(session_key)s::text IS NULL
       OR m.conversation_id IN (SELECT id FROM ros_conversations WHERE session_hash = md5(%(session_key)s::text)::uuid))
  AND (%(since)s::timestamptz IS NULL OR m.created_at >= %(since)s::timestamptz)
  AND (%(before)s::timestamptz IS NULL OR m.created_at < %(before)s::timestamptz)
  AND {tag}
  AND NOT (%(without_tools)s AND (m.role = 'tool' OR m.tool_name IS NOT NULL))
  AND (%(after_at)s::timestamptz IS NULL
       OR (m.created_at, m.seq) {beyond} (%(after_at)s::timestamptz, %(after_seq)s::bigint))
ORDER BY m.created_at {direction}, m.seq {direction}
LIMIT %(limit)s
