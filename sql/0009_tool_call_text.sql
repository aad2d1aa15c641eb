-- Texts for tool calls that came without one: which calls lack one, which of them are due, and what a summary reads of
-- a call that has got one.

-- A call without words of its own, as far as refinement reads it at all.
CREATE FUNCTION ros_is_untold(content text, tool_name text, metadata jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT tool_name IS NOT NULL AND content = ''
       AND coalesce(metadata ->> 'kind', 'speech') NOT IN ('injected', 'progress', 'replay')
$$;
CREATE INDEX ros_messages_untold ON ros_messages (conversation_id) WHERE ros_is_untold(content, tool_name, metadata);

-- What was captured of a message, without a text that was made for it later. Summaries read this: they hold the call's
-- name, arguments and result anyway, and so it does not matter to them whether its text was made before or after.
CREATE FUNCTION ros_captured_content(content text, metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN metadata ? 'content_made_by' THEN '' ELSE content END $$;
CREATE FUNCTION ros_captured_hash(text_hash uuid, tool_result text, metadata jsonb) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN metadata ? 'content_made_by' THEN md5(E'\n' || coalesce(tool_result, ''))::uuid ELSE text_hash END
$$;

CREATE OR REPLACE VIEW ros_unseen_conversations AS
SELECT stages.stage, c.id AS conversation_id, c.day, c.revision, c.updated_at,
       ros_is_noise(c.session_key, c.settings) AS noise
FROM ros_conversations AS c
CROSS JOIN (VALUES ('messages'), ('tool_call_text'), ('message_embeddings'), ('leaf_summaries')) AS stages (stage)
LEFT JOIN ros_stage_marks AS k ON k.stage = stages.stage AND k.conversation_id = c.id
WHERE k.revision IS NULL OR k.revision < c.revision;

-- Nothing to tell: these need not be looked at before they change.
INSERT INTO ros_stage_marks (stage, conversation_id, revision)
SELECT 'tool_call_text', c.id, c.revision FROM ros_conversations AS c
WHERE ros_is_noise(c.session_key, c.settings)
   OR NOT EXISTS (
       SELECT 1 FROM ros_messages AS m
       WHERE m.conversation_id = c.id AND ros_is_untold(m.content, m.tool_name, m.metadata));

-- Every call without a text. It is told when its result is there, because the text says how it ended; a result that has
-- not come while the conversation rested is not waited for any longer.
CREATE VIEW ros_untold_calls AS
SELECT m.id, m.seq, m.conversation_id, u.day, m.text_hash, m.awaits_result,
       NOT m.awaits_result OR u.updated_at <= now() - r.leaf_idle AS due
FROM ros_unseen_conversations AS u
CROSS JOIN ros_batch_rules() AS r
CROSS JOIN LATERAL (
    SELECT id, seq, conversation_id, text_hash, tool_result IS NULL AS awaits_result FROM ros_messages
    WHERE conversation_id = u.conversation_id AND ros_is_untold(content, tool_name, metadata)
    OFFSET 0
) AS m
WHERE u.stage = 'tool_call_text' AND NOT u.noise;

CREATE VIEW ros_pending_tool_call_text AS
SELECT u.id, u.seq, u.conversation_id, u.day, u.text_hash, u.awaits_result FROM ros_untold_calls AS u
WHERE u.due
  AND NOT ros_is_blocked('tool_call_text', 'service')
  AND NOT EXISTS (SELECT 1 FROM ros_blocked_items AS b WHERE b.stage = 'tool_call_text' AND b.item = u.id::text);

CREATE OR REPLACE VIEW ros_pending_days AS
SELECT 'messages' AS stage, day, false AS timed, count(*) AS items
FROM ros_unseen_conversations WHERE stage = 'messages' GROUP BY day
UNION ALL
SELECT 'tool_call_text', day, awaits_result, count(*) FROM ros_pending_tool_call_text GROUP BY day, awaits_result
UNION ALL
SELECT 'message_embeddings', day, false, count(*) FROM ros_pending_message_embeddings GROUP BY day
UNION ALL
SELECT 'leaf_summaries', day, due <> 'full', count(*) FROM ros_pending_leaf_summaries GROUP BY day, due <> 'full'
UNION ALL
SELECT parent_kind || '_summaries', day, due <> 'full', count(*)
FROM ros_pending_parent_summaries GROUP BY parent_kind, day, due <> 'full'
UNION ALL
SELECT 'summary_embeddings', day, false, count(*) FROM ros_pending_summary_embeddings GROUP BY day;
