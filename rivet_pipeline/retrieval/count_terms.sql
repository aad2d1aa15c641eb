-- Adds the terms of the next rows of one table, at most :size of them, to the lexicon and moves its watermark.
WITH rows AS MATERIALIZED (
    SELECT seq, content_tsv, {length} AS length FROM {table}
    WHERE seq > %(low)s AND seq <= %(high)s
    ORDER BY seq LIMIT %(size)s
), counted AS (
    SELECT count(*) AS counted, max(seq) AS counted_to,
           count(*) FILTER (WHERE length(content_tsv) > 0) AS documents, sum(length) FILTER (WHERE length(content_tsv) > 0) AS total_length
    FROM rows
), merged AS (
    INSERT INTO ros_lexicon AS l (term, df)
    SELECT word.lexeme, count(*) FROM rows CROSS JOIN LATERAL unnest(tsvector_to_array(content_tsv)) AS word (lexeme)
    GROUP BY word.lexeme
    ON CONFLICT (term) DO UPDATE SET df = l.df + excluded.df
)
UPDATE ros_corpus AS c
SET documents = c.documents + n.documents, total_length = c.total_length + coalesce(n.total_length, 0), {mark} = n.counted_to
FROM counted AS n
RETURNING n.counted, n.counted_to
