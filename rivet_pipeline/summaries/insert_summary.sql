INSERT INTO ros_summaries (conversation_id, kind, content, message_count, earliest_at, latest_at, agents, model,
                           pipeline_version, input_hash, grounding, ungrounded, coverage, uncovered,
                           metadata)
VALUES (%(conversation)s, %(kind)s, %(content)s, %(message_count)s, %(earliest_at)s, %(latest_at)s, %(agents)s,
        %(model)s, %(version)s, %(input_hash)s, %(grounding)s, %(ungrounded)s,
        %(coverage)s, %(uncovered)s, %(metadata)s)
RETURNING id
