-- How some messages and summaries begin; a summary's key is negative. The caller knows that they are within the filters.
SELECT m.seq AS key, left(m.content, %(characters)s) AS text
FROM ros_messages AS m WHERE m.seq = ANY (%(messages)s::bigint[])
UNION ALL
SELECT -s.seq, left(s.content, %(characters)s)
FROM ros_summaries AS s WHERE s.seq = ANY (%(summaries)s::bigint[])
