-- What the parts of a score need to know of each candidate within the filters. `head` (of the user's rows only) is enough
-- to tell what kind of memory a row is, and `characters` (of tool rows only) whether it is a stub. `length` is in bytes,
-- which are known without reading a text that stands apart from its row. `similarity` is computed here for rows that the
-- vector arm did not bring, NULL without a vector. Accesses are fenced: there may be any number of them, and a plan made
-- while there were few would go through them all.
SELECT m.seq AS key, m.id::text, m.conversation_id::text, (extract(epoch FROM m.created_at) * 1000000)::bigint AS at, m.role, m.tool_name,
       coalesce(m.metadata ->> 'kind', 'speech') AS kind, m.metadata ->> 'memory_type' AS memory_type,
       CASE WHEN m.role = 'user' THEN left(m.content, 500) ELSE '' END AS head,
       CASE WHEN m.role <> 'tool' AND m.tool_name IS NULL THEN NULL
            ELSE {tool_characters}
       END AS characters,
       octet_length(m.content) + coalesce(octet_length(m.tool_result), 0) AS length,
       a.access_count, (extract(epoch FROM a.last_accessed_at) * 1000000)::bigint AS last_accessed, {message_similarity} AS similarity,
       %(verbatim)s::text IS NOT NULL AND (position(%(verbatim)s::text IN lower(m.content)) > 0
           OR position(%(verbatim)s::text IN lower(coalesce(m.tool_result, ''))) > 0) AS verbatim
FROM ros_messages AS m
LEFT JOIN LATERAL (SELECT * FROM ros_access AS o WHERE o.kind = 'message' AND o.id = m.id OFFSET 0) AS a ON true
WHERE m.seq = ANY (%(messages)s::bigint[]) AND {message_filter}
UNION ALL
SELECT -s.seq, s.id::text, s.conversation_id::text, (extract(epoch FROM s.latest_at) * 1000000)::bigint, NULL, NULL, s.kind, s.metadata ->> 'memory_type',
       '', NULL, octet_length(s.content),
       a.access_count, (extract(epoch FROM a.last_accessed_at) * 1000000)::bigint, {summary_similarity},
       %(verbatim)s::text IS NOT NULL AND position(%(verbatim)s::text IN lower(s.content)) > 0
FROM ros_summaries AS s
LEFT JOIN LATERAL (SELECT * FROM ros_access AS o WHERE o.kind = 'summary' AND o.id = s.id OFFSET 0) AS a ON true
WHERE s.seq = ANY (%(summaries)s::bigint[]) AND {summary_filter}
