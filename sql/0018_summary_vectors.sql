-- A graph of the summaries' vectors alone, beside the one of all. Summaries are one vector in ten or fewer, so a walk of
-- the common graph in search of 45 of them passes some 500 others, each looked at in the table.

CREATE OR REPLACE FUNCTION ros_index_embedding_model(indexed_model_id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    width integer := (SELECT dimensions FROM ros_embedding_models WHERE id = indexed_model_id);
BEGIN
    IF to_regclass(format('ros_embeddings_hnsw_%s', indexed_model_id)) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('ros_index_embedding_model'));
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS ros_embeddings_hnsw_%s ON ros_embeddings USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) WHERE model_id = %s',
            indexed_model_id, width, indexed_model_id);
    END IF;
    IF to_regclass(format('ros_embeddings_hnsw_%s_summaries', indexed_model_id)) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('ros_index_embedding_model'));
        EXECUTE format(
            'CREATE INDEX IF NOT EXISTS ros_embeddings_hnsw_%s_summaries ON ros_embeddings USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) WHERE model_id = %s AND owner_kind = ''summary''',
            indexed_model_id, width, indexed_model_id);
    END IF;
END
$$;

-- Nothing is built here: an upgrade would wait for minutes, and so would every writer of vectors. The next pass of the
-- embedding builds what is missing; until then summaries are found in the common graph.
