-- Numbers what is pending of the wiki's pages, so that a pass reads it in pages.
INSERT INTO ros_embedding_work (n, id, day)
SELECT row_number() OVER (ORDER BY day, id), id, day
FROM ros_pending_wiki_embeddings
WHERE model_id = %(model)s AND (%(days)s::date[] IS NULL OR day = ANY(%(days)s::date[]))
