-- The oldest messages of a conversation that refinement reads and no leaf holds, in total order.
SELECT m.id, m.created_at, m.agent, m.role, ros_captured_content(m.content, m.metadata) AS content, m.tool_name,
       m.tool_args, m.tool_result, m.metadata,
       ros_captured_hash(m.text_hash, m.tool_result, m.metadata)::text AS text_hash
FROM ros_messages AS m
WHERE m.conversation_id = %(conversation)s
  AND ros_is_refined(m.content, m.tool_name, m.tool_result, m.metadata)
  AND NOT EXISTS (SELECT 1 FROM ros_summary_sources AS s WHERE s.message_id = m.id)
ORDER BY m.created_at, m.seq
LIMIT %(limit)s
