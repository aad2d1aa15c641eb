-- What search by exact text, by similar words and by tag needs.

-- The keys of the identifiers in a text: of each that is made of parts (`src/app/user_store.py:42`), every two parts that
-- stand side by side, and every word with a capital inside (`getUserById`), whatever stands around it. Rows that hold an
-- identifier are then few, however many hold its parts. A key is a 32-bit hash: a match is compared with the text itself.
-- Beyond 300 characters of one identifier (data in an encoding) nothing is kept. As much of a row's texts is looked at as
-- ros_analyse looks at. It calls nothing of ours: indexes are built under a search path on which none of that is found.
CREATE FUNCTION ros_identifiers(content text, tool_result text) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT coalesce(array_agg(key), '{}')
    FROM (
        SELECT left(coalesce(content, ''), 200000) || E'\n' || left(coalesce(tool_result, ''), 60000) AS body
    ) AS b
    CROSS JOIN LATERAL (
        SELECT hashtext(p[i] || '.' || p[i + 1]) AS key
        FROM (
            SELECT string_to_array(left(m[1], 300), '.') AS p
            FROM regexp_matches(
                regexp_replace(lower(body), '[./\\:_@#=~+$&-]+', '.', 'g'), '[[:alnum:]]+(?:\.[[:alnum:]]+)+', 'g') AS m
        ) AS t
        CROSS JOIN LATERAL generate_series(1, cardinality(p) - 1) AS i
        UNION ALL
        SELECT hashtext(lower(left(m[1], 300)))
        FROM regexp_matches(body, '[[:alnum:]]*[[:lower:]][[:upper:]][[:alnum:]]*', 'g') AS m
    ) AS keys
$$;

CREATE INDEX ros_messages_identifiers ON ros_messages USING gin (ros_identifiers(content, tool_result));
CREATE INDEX ros_summaries_identifiers ON ros_summaries USING gin (ros_identifiers(content, NULL));

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
