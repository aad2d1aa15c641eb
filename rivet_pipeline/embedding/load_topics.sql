-- One page of the work with its texts, less what another pass has done meanwhile.
SELECT w.id, w.day, t.text_hash, t.search_text AS content
FROM ros_embedding_work AS w
JOIN ros_wiki_topics AS t ON t.id = w.id
-- LIMIT keeps this one look into the key per row, whatever the planner believes of a table that is being filled.
LEFT JOIN LATERAL (
    SELECT true AS found FROM ros_embeddings AS e
    WHERE e.model_id = %(model)s AND e.owner_kind = 'topic' AND e.owner_id = t.id
      AND e.content_hash = t.text_hash
    LIMIT 1
) AS present ON true
WHERE w.n > %(after)s AND w.n <= %(upto)s AND present.found IS NULL
ORDER BY w.n
