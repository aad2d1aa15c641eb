-- Conversations with their figures, last active first.
SELECT c.id, c.session_key, c.agent, c.channel, c.title, c.day, c.updated_at,
       (SELECT count(*) FROM ros_messages AS m WHERE m.conversation_id = c.id) AS messages,
       (SELECT count(*) FROM ros_summaries AS s WHERE s.conversation_id = c.id) AS summaries,
       ros_is_noise(c.session_key, c.settings) AS noise,
       (SELECT left(m.content, 400) FROM ros_messages AS m
        WHERE m.conversation_id = c.id AND m.role = 'user' AND coalesce(m.metadata ->> 'kind', 'speech') = 'speech'
          AND btrim(m.content) <> ''
        ORDER BY m.created_at, m.seq LIMIT 1) AS opening
FROM (
    SELECT * FROM ros_conversations
    WHERE (%(id)s::uuid IS NULL OR id = %(id)s::uuid)
      AND (%(agent)s::text IS NULL OR agent = %(agent)s::text)
      AND (%(day)s::date IS NULL OR day = %(day)s::date)
      AND (%(tag)s::text IS NULL OR id IN (SELECT ros_tagged_conversations(%(tag)s::text)))
      AND (%(since)s::timestamptz IS NULL AND %(before)s::timestamptz IS NULL
           OR updated_at >= coalesce(%(since)s::timestamptz, '-infinity')
              AND EXISTS (SELECT FROM ros_messages AS m
                          WHERE m.conversation_id = ros_conversations.id
                            AND m.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
                            AND m.created_at < coalesce(%(before)s::timestamptz, 'infinity')))
      AND (%(with_noise)s OR NOT ros_is_noise(session_key, settings))
    ORDER BY updated_at DESC, id
    LIMIT %(limit)s OFFSET %(offset)s
) AS c
ORDER BY c.updated_at DESC, c.id
