-- Rows within the filters that hold a part which is spelled like the text: of the newest ones, and of the newest that
-- hold the known terms (none with an empty selector).
WITH near AS MATERIALIZED (
    (SELECT {alias}.seq FROM {table} AS {alias} WHERE {filter} ORDER BY {at} DESC, {alias}.seq DESC LIMIT %(newest)s)
    UNION
    (SELECT seq FROM (
        SELECT {alias}.seq, {at} AS at FROM {table} AS {alias}
        WHERE {alias}.content_tsv @@ %(selector)s::tsquery AND {filter}
        OFFSET 0) AS found
     ORDER BY at DESC, seq DESC LIMIT %(newest)s)
)
SELECT {alias}.seq, l.likeness
FROM near JOIN {table} AS {alias} ON {alias}.seq = near.seq
CROSS JOIN LATERAL (
    SELECT greatest(word_similarity(%(text)s, left({alias}.content, %(looked_at)s)),
                    word_similarity(%(text)s, left({tool_result}, %(looked_at)s))) AS likeness OFFSET 0
) AS l
WHERE l.likeness >= %(least)s
ORDER BY l.likeness DESC, {at} DESC, {alias}.seq DESC
LIMIT %(wanted)s
