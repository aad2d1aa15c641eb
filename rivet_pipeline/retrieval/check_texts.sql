-- Of the given rows those that the filters let through; with :verbatim, a text in small letters, only those that hold it.
SELECT m.seq AS key
FROM ros_messages AS m
WHERE m.seq = ANY (%(messages)s::bigint[]) AND {message_filter}
  AND (%(verbatim)s::text IS NULL OR position(%(verbatim)s::text IN lower(m.content)) > 0
       OR position(%(verbatim)s::text IN lower(coalesce(m.tool_result, ''))) > 0)
UNION ALL
SELECT -s.seq
FROM ros_summaries AS s
WHERE s.seq = ANY (%(summaries)s::bigint[]) AND {summary_filter}
  AND (%(verbatim)s::text IS NULL OR position(%(verbatim)s::text IN lower(s.content)) > 0)
