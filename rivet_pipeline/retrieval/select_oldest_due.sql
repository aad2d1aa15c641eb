-- The five conversations longest due for a leaf, of the first thousand that are not seen: a conversation that is done
-- and not marked yet must not cost more than its messages. LATERAL keeps the planner to these (see sql/0004).
SELECT w.conversation_id, w.waiting, w.due, w.updated_at
FROM (
    SELECT conversation_id, updated_at FROM ros_unseen_conversations WHERE stage = 'leaf_summaries' AND NOT noise
    ORDER BY updated_at, conversation_id LIMIT 1000
) AS u
CROSS JOIN LATERAL (
    SELECT conversation_id, waiting, due, updated_at FROM ros_unsummarised
    WHERE conversation_id = u.conversation_id AND due IS NOT NULL OFFSET 0
) AS w
ORDER BY u.updated_at, u.conversation_id LIMIT 5
