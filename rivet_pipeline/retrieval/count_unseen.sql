-- Of the conversations of which the leaves have not seen all messages: what they hold less what stands in a leaf. Never
-- fewer than wait, because messages that no leaf takes are counted too. LATERAL keeps the planner to these.
SELECT count(*) AS conversations, coalesce(sum(u.messages - l.messages), 0)::bigint AS messages
FROM (
    SELECT c.conversation_id, sum(k.messages) AS messages
    FROM ros_unseen_conversations AS c JOIN ros_message_counts AS k ON k.conversation_id = c.conversation_id
    WHERE c.stage = 'leaf_summaries' AND NOT c.noise
    GROUP BY c.conversation_id
) AS u
CROSS JOIN LATERAL (
    SELECT count(*) AS messages
    FROM ros_summaries AS s JOIN ros_summary_sources AS x ON x.summary_id = s.id
    WHERE s.conversation_id = u.conversation_id AND s.kind = 'leaf'
    OFFSET 0
) AS l
WHERE u.messages > l.messages
