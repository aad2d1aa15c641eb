-- The tags of conversations, each literal once with the firmest status that it has on the session or on a summary.
SELECT conversation_id, tag_key, tag_value, max(display) AS display,
       (array_agg(status ORDER BY status = 'accepted' DESC, status = 'suggested' DESC))[1] AS status,
       coalesce(bool_or(decided_by IS NOT NULL) FILTER (WHERE status = 'accepted'),
                bool_or(decided_by IS NOT NULL)) AS reviewed,
       bool_or(entity_kind = 'conversation') AS on_session
FROM ros_tags
WHERE conversation_id = ANY(%(conversations)s::uuid[]) AND status = ANY(%(statuses)s::text[])
GROUP BY conversation_id, tag_key, tag_value
ORDER BY conversation_id, tag_key, tag_value
