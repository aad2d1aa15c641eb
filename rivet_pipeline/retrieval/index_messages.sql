-- Messages as the text index takes them. Flags as `postings.py` has them; a faint row is one that `noise_factor` of
-- `scoring.py` would lower.
SELECT m.seq, floor(extract(epoch FROM m.created_at))::bigint AS at, floor(extract(epoch FROM m.created_at))::bigint AS since,
       octet_length(m.content) + coalesce(octet_length(m.tool_result), 0) AS length,
       c.number AS conversation, ARRAY[m.agent] AS agents, m.role,
       CASE WHEN m.metadata ->> 'kind' IN ('progress', 'replay') THEN 1 ELSE 0 END
       + CASE WHEN m.metadata ->> 'kind' IN ('injected', 'notice')
                OR ((m.role = 'tool' OR m.tool_name IS NOT NULL)
                    AND {tool_characters} < %(stub)s) THEN 2 ELSE 0 END AS flags,
       tsvectorsend(m.content_tsv) AS words, ros_wide_text(m.content, m.tool_result) AS wide
FROM ros_messages AS m JOIN ros_conversations AS c ON c.id = m.conversation_id
WHERE {which}
ORDER BY m.seq
