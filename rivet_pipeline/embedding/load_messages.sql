-- One page of the work with its texts, less what another pass has done meanwhile.
SELECT w.id, w.day, m.text_hash, m.content, m.tool_name, m.tool_args, m.tool_result
FROM ros_embedding_work AS w
JOIN ros_messages AS m ON m.id = w.id
-- LIMIT keeps this one look into the key per row, whatever the planner believes of a table that is being filled.
LEFT JOIN LATERAL (
    SELECT true AS found FROM ros_embeddings AS e
    WHERE e.model_id = %(model)s AND e.owner_kind = 'message' AND e.owner_id = m.id
      AND e.content_hash = m.text_hash
    LIMIT 1
) AS present ON true
WHERE w.n > %(after)s AND w.n <= %(upto)s AND present.found IS NULL
ORDER BY w.n
