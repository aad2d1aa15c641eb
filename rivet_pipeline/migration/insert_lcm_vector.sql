-- One vector, for the text that its owner has now: all of it, the content of a message, or a tool's result (the second
-- part of the text, after the newline between both).
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT %(model)s, %(kind)s, o.id, (%(part)s = 'result')::integer, o.text_hash,
       CASE WHEN %(part)s = 'result' THEN o.content_length + 1 ELSE 0 END,
       CASE WHEN %(part)s = 'content' AND o.content_length > 0 THEN o.content_length ELSE o.text_length END,
       %(vector)s
FROM (
    SELECT id, text_hash, length(content) AS content_length,
           length(content) + 1 + length(coalesce(tool_result, '')) AS text_length
    FROM ros_messages WHERE %(kind)s = 'message' AND id = %(owner)s
    UNION ALL
    SELECT id, text_hash, length(content), length(content) FROM ros_summaries
    WHERE %(kind)s = 'summary' AND id = %(owner)s
) AS o
ON CONFLICT (model_id, owner_kind, owner_id, chunk) DO NOTHING
