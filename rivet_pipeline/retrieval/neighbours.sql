-- The message before and the one after each of some messages, in the order of their conversation, passing over progress
-- ticks and replays; and whether these are within the filters. Each is one step in the conversation's index.
SELECT o.seq, b.seq AS before, coalesce(b.within, false) AS before_within,
       a.seq AS after, coalesce(a.within, false) AS after_within
FROM ros_messages AS o
LEFT JOIN LATERAL (
    SELECT m.seq, ({filter}) AS within FROM ros_messages AS m
    WHERE m.conversation_id = o.conversation_id AND (m.created_at, m.seq) < (o.created_at, o.seq)
      AND coalesce(m.metadata ->> 'kind', '') NOT IN ('progress', 'replay')
    ORDER BY m.created_at DESC, m.seq DESC LIMIT 1) AS b ON true
LEFT JOIN LATERAL (
    SELECT m.seq, ({filter}) AS within FROM ros_messages AS m
    WHERE m.conversation_id = o.conversation_id AND (m.created_at, m.seq) > (o.created_at, o.seq)
      AND coalesce(m.metadata ->> 'kind', '') NOT IN ('progress', 'replay')
    ORDER BY m.created_at, m.seq LIMIT 1) AS a ON true
WHERE o.seq = ANY (%(messages)s::bigint[])
