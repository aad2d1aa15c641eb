-- Of the given rows those that the filters let through (with :verbatim, a text in small letters, only those that hold it),
-- and those that are wanted in any case, with their conversations.
SELECT m.seq AS key, c.number, c.id AS conversation_id,
       coalesce(m.seq = ANY (%(messages)s::bigint[]) AND ({message_filter})
                AND (%(verbatim)s::text IS NULL OR position(%(verbatim)s::text IN lower(m.content)) > 0
                     OR position(%(verbatim)s::text IN lower(coalesce(m.tool_result, ''))) > 0), false) AS passes
FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
WHERE m.seq = ANY (%(messages)s::bigint[] || %(extra_messages)s::bigint[])
UNION ALL
SELECT -s.seq, c.number, c.id, coalesce(s.seq = ANY (%(summaries)s::bigint[]) AND ({summary_filter})
                AND (%(verbatim)s::text IS NULL OR position(%(verbatim)s::text IN lower(s.content)) > 0), false)
FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
WHERE s.seq = ANY (%(summaries)s::bigint[] || %(extra_summaries)s::bigint[])
