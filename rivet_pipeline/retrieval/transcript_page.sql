-- One page of a conversation in total order. The page is found in the index before wide rows are read.
SELECT m.id, m.seq, m.role, m.agent, m.content, m.tool_name, m.tool_args, m.tool_result, m.metadata, m.created_at,
       x.summary_id AS leaf_id
FROM (
    SELECT id FROM ros_messages WHERE conversation_id = %(conversation)s
    ORDER BY created_at, seq LIMIT %(limit)s OFFSET %(offset)s
) AS p
JOIN ros_messages AS m ON m.id = p.id
LEFT JOIN ros_summary_sources AS x ON x.message_id = m.id
ORDER BY m.created_at, m.seq
