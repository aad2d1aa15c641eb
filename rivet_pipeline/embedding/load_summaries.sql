-- One page of the work with its texts, less what another pass has done meanwhile.
SELECT w.id, w.day, s.text_hash, s.content
FROM ros_embedding_work AS w
JOIN ros_summaries AS s ON s.id = w.id
-- LIMIT keeps this one look into the key per row, whatever the planner believes of a table that is being filled.
LEFT JOIN LATERAL (
    SELECT true AS found FROM ros_embeddings AS e
    WHERE e.model_id = %(model)s AND e.owner_kind = 'summary' AND e.owner_id = s.id
      AND e.content_hash = s.text_hash
    LIMIT 1
) AS present ON true
WHERE w.n > %(after)s AND w.n <= %(upto)s AND present.found IS NULL
ORDER BY w.n
