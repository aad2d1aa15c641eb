-- The sessions with something to review, those with the newest first, each with the beginning of its latest leaf, less
-- the line that names its period.
SELECT c.id AS conversation_id, c.session_key, c.title, c.agent, c.updated_at, w.waiting,
       extract(epoch FROM now() - w.oldest)::float8 AS age_seconds,
       left(btrim(regexp_replace(coalesce(s.head, ''), '\APeriod [^\n]*\n|\s+', ' ', 'g')), 200) AS excerpt,
       ARRAY(SELECT DISTINCT t.tag_key || ':' || t.tag_value FROM ros_tags AS t
             WHERE t.conversation_id = c.id AND t.status = 'accepted' ORDER BY 1) AS accepted
FROM (
    SELECT t.conversation_id, count(*) AS waiting, min(t.created_at) AS oldest, max(t.created_at) AS newest
    FROM ros_tags AS t
    WHERE (t.status = 'suggested' OR t.removal = 'suggested')
      AND (%(conversation)s::uuid IS NULL OR t.conversation_id = %(conversation)s::uuid)
      AND (t.entity_kind = 'conversation' OR EXISTS (SELECT 1 FROM ros_summaries AS x WHERE x.id = t.entity_id))
    GROUP BY t.conversation_id
) AS w
JOIN ros_conversations AS c ON c.id = w.conversation_id
LEFT JOIN LATERAL (
    SELECT left(content, 1000) AS head FROM ros_summaries
    WHERE conversation_id = c.id AND kind = 'leaf' ORDER BY earliest_at DESC, seq DESC LIMIT 1
) AS s ON true
ORDER BY w.newest DESC, c.id
LIMIT %(limit)s
