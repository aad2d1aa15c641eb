-- The sessions with something to review, those with the newest first, each with the beginning of its latest leaf, less
-- the line that names its period. They are chosen before anything else is looked up about them.
SELECT c.id AS conversation_id, c.session_key, c.title, c.agent, c.updated_at, w.waiting,
       extract(epoch FROM now() - w.oldest)::float8 AS age_seconds,
       left(btrim(regexp_replace(coalesce(s.head, ''), '\APeriod [^\n]*\n|\s+', ' ', 'g')), 300) AS excerpt,
       ARRAY(SELECT DISTINCT t.tag_key || ':' || t.tag_value FROM ros_tags AS t
             WHERE t.conversation_id = c.id AND t.status = 'accepted' ORDER BY 1) AS accepted
FROM (
    SELECT t.conversation_id, count(*) AS waiting, min(t.created_at) AS oldest, max(t.created_at) AS newest
    FROM ros_tags AS t
    LEFT JOIN ros_summaries AS x ON t.entity_kind = 'summary' AND x.id = t.entity_id
    WHERE (t.status = 'suggested' OR t.removal = 'suggested')
      AND (%(conversation)s::uuid IS NULL OR t.conversation_id = %(conversation)s::uuid)
      AND (t.entity_kind = 'conversation' OR x.id IS NOT NULL)
      AND t.conversation_id IN (SELECT id FROM ros_conversations)
    GROUP BY t.conversation_id
    ORDER BY newest DESC, t.conversation_id
    LIMIT %(limit)s
) AS w
JOIN ros_conversations AS c ON c.id = w.conversation_id
LEFT JOIN LATERAL (
    SELECT left(content, 1000) AS head FROM ros_summaries
    WHERE conversation_id = c.id AND kind = 'leaf' ORDER BY earliest_at DESC, seq DESC LIMIT 1
) AS s ON true
ORDER BY w.newest DESC, c.id
