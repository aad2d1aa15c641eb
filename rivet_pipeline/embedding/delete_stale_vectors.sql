-- Removes what an owner has of a former text. After the insert: that waited for another pass at the same owner, and
-- this statement sees what it left.
DELETE FROM ros_embeddings AS e
USING (SELECT DISTINCT owner_id, content_hash FROM ros_embedding_incoming) AS i
WHERE e.model_id = %(model)s AND e.owner_kind = %(kind)s AND e.owner_id = i.owner_id
  AND e.content_hash <> i.content_hash
  AND EXISTS (
      SELECT 1 FROM ros_embeddings AS new
      WHERE new.model_id = %(model)s AND new.owner_kind = %(kind)s AND new.owner_id = i.owner_id AND new.chunk = 0
        AND new.content_hash = i.content_hash)
