-- Summaries as the text index takes them.
SELECT s.seq, floor(extract(epoch FROM s.latest_at))::bigint AS at, floor(extract(epoch FROM s.earliest_at))::bigint AS since,
       octet_length(s.content) AS length, c.number AS conversation, s.agents, NULL::text AS role, 0 AS flags,
       tsvectorsend(s.content_tsv) AS words, ros_wide_text(s.content, NULL) AS wide
FROM ros_summaries AS s JOIN ros_conversations AS c ON c.id = s.conversation_id
WHERE {which}
ORDER BY s.seq
