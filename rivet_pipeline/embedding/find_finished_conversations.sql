-- Those of the conversations of which nothing is pending, failed or waiting for the service. Always in the same order, so
-- that two passes can not deadlock on each other's marks.
SELECT c.conversation_id, c.revision
FROM unnest(%(conversations)s::uuid[], %(revisions)s::bigint[]) AS c (conversation_id, revision)
WHERE EXISTS (SELECT 1 FROM ros_embedding_models WHERE id = %(model)s AND filling)
  AND NOT ros_is_blocked('message_embeddings', 'service')
  AND c.conversation_id NOT IN (
      SELECT conversation_id FROM ros_pending_message_embeddings
      WHERE conversation_id = ANY(%(conversations)s::uuid[]))
  AND c.conversation_id NOT IN (
      SELECT m.conversation_id
      FROM ros_failures AS f
      JOIN ros_messages AS m ON m.id = CASE WHEN f.item ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN f.item::uuid END
      WHERE f.stage = 'message_embeddings')
ORDER BY c.conversation_id
