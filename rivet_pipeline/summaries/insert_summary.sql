INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                           pipeline_version, input_hash, grounding, ungrounded, metadata)
VALUES (%(conversation)s, %(kind)s, %(content)s, %(message_count)s, %(earliest_at)s, %(latest_at)s, %(agents)s,
        %(model)s, %(version)s, %(input_hash)s, %(grounding)s, %(ungrounded)s, %(metadata)s)
RETURNING id
