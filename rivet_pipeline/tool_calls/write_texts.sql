-- Gives calls their texts, if they are still what the texts were made from. A change of a conversation counts as one more
-- revision, which makes its vectors pending again; the stages that read nothing of these texts and had seen all before
-- have seen this too. The caller holds the conversations' locks.
WITH written AS (
    UPDATE ros_messages AS m
    SET content = i.text,
        metadata = m.metadata || jsonb_build_object(
            'content_made_by', %(writer)s::text,
            'content_made_at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    FROM unnest(%(ids)s::uuid[], %(texts)s::text[], %(hashes)s::uuid[]) AS i (id, text, seen)
    WHERE m.id = i.id AND m.content = '' AND m.text_hash = i.seen
    RETURNING m.id, m.conversation_id
), changed AS (
    UPDATE ros_conversations AS c SET revision = c.revision + 1
    WHERE c.id IN (SELECT conversation_id FROM written)
    RETURNING c.id, c.revision
), marks AS (
    UPDATE ros_stage_marks AS k SET revision = c.revision
    FROM changed AS c
    WHERE k.conversation_id = c.id AND k.revision = c.revision - 1 AND k.stage IN ('messages', 'leaf_summaries')
), forgotten AS (
    -- Another text deserves another try, whatever the former one failed of.
    DELETE FROM ros_failures
    WHERE stage IN ('tool_call_text', 'message_embeddings') AND item IN (SELECT id::text FROM written)
)
SELECT id FROM written
