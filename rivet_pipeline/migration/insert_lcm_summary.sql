INSERT INTO ros_summaries (id, conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                           pipeline_version, input_hash, metadata, created_at)
VALUES (%(id)s, %(conversation)s, %(kind)s, %(content)s, %(message_count)s, %(earliest_at)s, %(latest_at)s, %(agents)s,
        %(model)s, %(version)s, %(input_hash)s, %(metadata)s, coalesce(%(created_at)s, %(latest_at)s))
ON CONFLICT (id) DO NOTHING
