-- What search by exact text, by similar words and by tag needs.

-- A search through the texts themselves begins with the newest.
CREATE INDEX ros_summaries_latest ON ros_summaries (latest_at DESC, seq DESC);

-- Which of the known words a misspelt one may mean.
CREATE INDEX ros_lexicon_similar ON ros_lexicon USING gin (term gin_trgm_ops);

-- The conversations that carry an accepted tag `key:value`, on the session or on any of its summaries. In its own words
-- rather than those of the tags' migration, so that a store without tags answers with nothing.
CREATE FUNCTION ros_tagged_conversations(literal text) RETURNS SETOF uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    wanted_key text := split_part(literal, ':', 1);
    wanted_value text := substr(literal, length(wanted_key) + 2);
BEGIN
    IF to_regclass('ros_tags') IS NULL THEN
        RETURN;
    END IF;
    IF to_regprocedure('ros_tag_text(text, integer)') IS NOT NULL THEN
        EXECUTE 'SELECT ros_tag_text($1, 64), ros_tag_text($2, 128)' INTO wanted_key, wanted_value
        USING wanted_key, wanted_value;
    END IF;
    IF to_regprocedure('ros_tag_target(text, text)') IS NOT NULL THEN
        EXECUTE 'SELECT ros_tag_target($1, $2)' INTO wanted_value USING wanted_key, wanted_value;
    END IF;
    RETURN QUERY
        SELECT t.entity_id FROM ros_tags AS t
        WHERE t.status = 'accepted' AND t.tag_key = wanted_key AND t.tag_value = wanted_value
          AND t.entity_kind = 'conversation'
        UNION
        SELECT s.conversation_id FROM ros_tags AS t JOIN ros_summaries AS s ON s.id = t.entity_id
        WHERE t.status = 'accepted' AND t.tag_key = wanted_key AND t.tag_value = wanted_value
          AND t.entity_kind = 'summary';
END
$$;

-- The accepted tags of some conversations, each once, as `key:value`; none in a store without tags.
CREATE FUNCTION ros_accepted_tags(conversations uuid[]) RETURNS TABLE (conversation_id uuid, tag text)
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    IF to_regclass('ros_tags') IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT t.entity_id, t.tag_key || ':' || t.tag_value FROM ros_tags AS t
        WHERE t.status = 'accepted' AND t.entity_kind = 'conversation' AND t.entity_id = ANY (conversations)
        UNION
        SELECT s.conversation_id, t.tag_key || ':' || t.tag_value
        FROM ros_summaries AS s JOIN ros_tags AS t ON t.entity_kind = 'summary' AND t.entity_id = s.id
        WHERE t.status = 'accepted' AND s.conversation_id = ANY (conversations);
END
$$;

-- A vector without a direction is near to nothing. The writers refuse one; this says so for whoever comes.
DELETE FROM ros_embeddings WHERE l2_norm(embedding) = 0;
ALTER TABLE ros_embeddings ADD CONSTRAINT ros_embeddings_direction CHECK (l2_norm(embedding) > 0);
