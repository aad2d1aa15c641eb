-- The same words for less: making them is the largest part of what a capture or an import costs the server. A text was
-- folded twice, because a subquery without OFFSET is taken apart and its expression put wherever its column stood; and
-- a text of ASCII alone, as most are, needs no folding.
CREATE OR REPLACE FUNCTION ros_tokens(source text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT to_tsvector('pg_catalog.english'::regconfig, folded)
        || to_tsvector('pg_catalog.english'::regconfig, ros_split(folded))
    FROM (
        SELECT CASE WHEN octet_length(source) = length(source) THEN source ELSE ros_fold(source) END AS folded
        OFFSET 0
    ) AS f
$$;
