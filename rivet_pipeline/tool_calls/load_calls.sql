-- One page of the work, less what has got a text meanwhile. Of a long result the beginning and the end are enough.
SELECT m.id, m.conversation_id, w.day, m.text_hash, m.tool_name, m.tool_args, m.metadata,
       CASE WHEN length(m.tool_result) <= 6000 THEN m.tool_result
            ELSE left(m.tool_result, 4000) || E'\n' || right(m.tool_result, 2000) END AS tool_result
FROM ros_tool_text_work AS w
JOIN ros_messages AS m ON m.id = w.id
WHERE w.page = %(page)s AND m.content = ''
ORDER BY w.n
