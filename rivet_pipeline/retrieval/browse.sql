-- One page of messages in total order. `filters` are those that were asked for, and no others.
SELECT m.id, m.seq, m.role, m.agent, m.channel, m.content, m.tool_name, m.tool_args, m.tool_result, m.metadata,
       m.created_at, m.conversation_id, c.session_key, c.title
FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
WHERE {filters}
ORDER BY m.created_at {direction}, m.seq {direction}
LIMIT %(limit)s
