-- One page of the work with its texts, less what another pass has done meanwhile.
SELECT w.id, w.day, m.text_hash, m.content, m.tool_name, m.tool_args, m.tool_result
FROM ros_embedding_work AS w
JOIN ros_messages AS m ON m.id = w.id
WHERE w.n > %(after)s AND w.n <= %(upto)s
  AND NOT EXISTS (
      SELECT 1 FROM ros_embeddings AS e
      WHERE e.model_id = %(model)s AND e.owner_kind = 'message' AND e.owner_id = m.id AND e.content_hash = m.text_hash)
ORDER BY w.n
