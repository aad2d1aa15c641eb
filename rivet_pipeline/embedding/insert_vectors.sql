-- Stores the vectors of texts that are still the current ones. In the order of the key, so that two passes do not wait
-- for each other in a circle.
INSERT INTO ros_embeddings (model_id, owner_kind, owner_id, chunk, content_hash, char_start, char_end, embedding)
SELECT %(model)s, %(kind)s, i.owner_id, i.chunk, i.content_hash, i.char_start, i.char_end, i.embedding
FROM ros_embedding_incoming AS i
LEFT JOIN ros_messages AS m ON %(kind)s = 'message' AND m.id = i.owner_id
LEFT JOIN ros_summaries AS s ON %(kind)s = 'summary' AND s.id = i.owner_id
LEFT JOIN ros_wiki_topics AS t ON %(kind)s = 'topic' AND t.id = i.owner_id
WHERE i.content_hash = coalesce(m.text_hash, s.text_hash, t.text_hash)
ORDER BY i.owner_id, i.chunk
ON CONFLICT (model_id, owner_kind, owner_id, chunk) DO UPDATE SET
    content_hash = excluded.content_hash, char_start = excluded.char_start, char_end = excluded.char_end,
    embedding = excluded.embedding, created_at = now()
WHERE ros_embeddings.content_hash <> excluded.content_hash
