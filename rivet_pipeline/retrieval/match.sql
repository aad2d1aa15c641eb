-- The rows of one table whose words match, within the filters: the sequence numbers of the newest :budget of them.
-- The inner query is fenced and unordered, so that it is a bitmap over the text index and not a walk by date.
SELECT array_agg(seq) AS seqs, count(*) AS found
FROM (
    SELECT seq FROM (
        SELECT {alias}.seq, {at} AS at
        FROM {table} AS {alias}
        WHERE {alias}.content_tsv @@ %(selector)s::tsquery
          AND (%(cutoff)s::timestamptz IS NULL OR {at} >= %(cutoff)s::timestamptz)
          AND {filter}
        OFFSET 0
    ) AS matched
    ORDER BY at DESC, seq DESC
    LIMIT %(budget)s
) AS newest
