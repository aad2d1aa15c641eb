-- Conversations of which the leaves have not seen all messages, and all their messages, seen or not, by what these make
-- of them: never fewer messages than wait, and never a state below the true one.
SELECT CASE WHEN u.messages >= r.leaf_batch
              OR (u.messages >= r.leaf_min AND (NOT u.active OR u.updated_at <= now() - r.leaf_idle))
              OR (u.messages >= r.leaf_stale_min AND u.updated_at <= now() - r.leaf_stale) THEN 'eligible'
            WHEN u.messages >= r.leaf_stale_min THEN 'active_tail'
            ELSE 'below_floor'
       END AS state,
       count(*) AS conversations, sum(u.messages)::bigint AS messages
FROM (
    SELECT c.conversation_id, c.active, c.updated_at, sum(k.messages)::bigint AS messages
    FROM ros_unseen_conversations AS c JOIN ros_message_counts AS k ON k.conversation_id = c.conversation_id
    WHERE c.stage = 'leaf_summaries' AND NOT c.noise
    GROUP BY c.conversation_id, c.active, c.updated_at
) AS u
CROSS JOIN ros_batch_rules() AS r
GROUP BY state
