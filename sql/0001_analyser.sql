-- Extensions and the one text analyser. Everything that is indexed and everything that is asked goes through
-- ros_analyse / ros_query, so both sides are folded and split in the same way.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS unaccent;

-- unaccent() is only STABLE because its dictionary is looked up by name; naming the dictionary makes the result fixed.
CREATE FUNCTION ros_fold(source text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT unaccent('unaccent'::regdictionary, normalize(source, NFKC)) $$;

-- The split form: camel case and digits apart, every other sign a space, each CJK character a word of its own.
CREATE FUNCTION ros_split(source text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT regexp_replace(
        regexp_replace(
            regexp_replace(
                regexp_replace(source, '([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])', ' \1 ', 'g'),
                '([[:lower:][:digit:]])([[:upper:]])', '\1 \2', 'g'),
            '([[:upper:]])([[:upper:]][[:lower:]])', '\1 \2', 'g'),
        '[^[:alnum:]]+', ' ', 'g')
$$;

CREATE FUNCTION ros_tokens(source text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT to_tsvector('pg_catalog.english'::regconfig, folded)
        || to_tsvector('pg_catalog.english'::regconfig, ros_split(folded))
    FROM (SELECT ros_fold(source) AS folded) AS f
$$;

-- A tsvector may hold 1,048,575 bytes of words and positions; past that to_tsvector raises and would refuse the row.
-- 20,000 characters of both texts together can not reach it; when a longer text of many long, distinct words
-- still does, the indexed prefix is halved until it fits. The stored text itself is never touched.
CREATE FUNCTION ros_analyse(content text, tool_result text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    body text := coalesce(content, '');
    result_text text := coalesce(tool_result, '');
    content_limit integer := 200000;
    result_limit integer := 60000;
BEGIN
    IF length(body) + length(result_text) <= 20000 THEN
        RETURN ros_tokens(CASE WHEN result_text = '' THEN body ELSE body || E'\n' || result_text END);
    END IF;
    LOOP
        BEGIN
            RETURN ros_tokens(left(body, content_limit) || E'\n' || left(result_text, result_limit));
        EXCEPTION WHEN program_limit_exceeded THEN
            content_limit := content_limit / 2;
            result_limit := result_limit / 2;
        END;
    END LOOP;
END
$$;

-- The words of a query, split and folded as the texts were. Empty for a query of stop words or signs only.
CREATE FUNCTION ros_query_terms(query text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT tsvector_to_array(ros_tokens(left(query, 8000))) $$;
