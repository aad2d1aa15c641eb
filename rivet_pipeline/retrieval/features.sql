-- What the parts of a score need to know of each candidate. `head` is enough to tell what kind of memory it is;
-- `similarity` is computed here for rows that the vector arm did not bring, and NULL without a stored vector.
SELECT 'message' AS source, m.seq, m.id, m.created_at AS at, m.role, m.tool_name, m.metadata,
       left(m.content, 500) AS head,
       least(length(btrim(m.content)) + coalesce(length(btrim(m.tool_result)), 0), 1000) AS characters,
       a.access_count, a.last_accessed_at, {message_similarity} AS similarity,
       %(verbatim)s::text IS NOT NULL AND (position(%(verbatim)s::text IN lower(m.content)) > 0
           OR position(%(verbatim)s::text IN lower(coalesce(m.tool_result, ''))) > 0) AS verbatim
FROM ros_messages AS m
LEFT JOIN ros_access AS a ON a.kind = 'message' AND a.id = m.id
WHERE m.seq = ANY (%(messages)s::bigint[])
UNION ALL
SELECT 'summary', s.seq, s.id, s.latest_at, NULL, NULL, s.metadata,
       left(s.content, 500), least(length(btrim(s.content)), 1000),
       a.access_count, a.last_accessed_at, {summary_similarity},
       %(verbatim)s::text IS NOT NULL AND position(%(verbatim)s::text IN lower(s.content)) > 0
FROM ros_summaries AS s
LEFT JOIN ros_access AS a ON a.kind = 'summary' AND a.id = s.id
WHERE s.seq = ANY (%(summaries)s::bigint[])
