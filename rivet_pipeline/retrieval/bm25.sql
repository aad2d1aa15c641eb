-- BM25 of the given messages and summaries in one list, and the best of them by text and freshness together.
-- ts_filter leaves of each tsvector only the query's words with their positions, so nothing is unpacked but those.
-- An age is cut at 10,000 days because exp() raises on underflow.
-- A word stands in a tsvector twice (the text and its split form), hence half the positions are its frequency.
WITH terms AS (
    SELECT * FROM unnest(%(terms)s::text[], %(term_dfs)s::float8[]) WITH ORDINALITY AS t (term, df, number)
), phrases AS (
    SELECT query::tsquery AS query, df, -number AS number
    FROM unnest(%(phrases)s::text[], %(phrase_dfs)s::float8[]) WITH ORDINALITY AS p (query, df, number)
), docs AS MATERIALIZED (
    SELECT 'message' AS source, m.seq, m.created_at AS at, length(m.content_tsv) AS words,
           ts_filter(setweight(m.content_tsv, 'A', %(lexemes)s::text[]), '{{a}}') AS hits,
           a.access_count, a.last_accessed_at
    FROM ros_messages AS m
    LEFT JOIN ros_access AS a ON a.kind = 'message' AND a.id = m.id
    WHERE m.seq = ANY (%(messages)s::bigint[])
    UNION ALL
    SELECT 'summary', s.seq, s.latest_at, length(s.content_tsv),
           ts_filter(setweight(s.content_tsv, 'A', %(lexemes)s::text[]), '{{a}}'),
           a.access_count, a.last_accessed_at
    FROM ros_summaries AS s
    LEFT JOIN ros_access AS a ON a.kind = 'summary' AND a.id = s.id
    WHERE s.seq = ANY (%(summaries)s::bigint[])
), corpus AS (
    SELECT greatest(%(documents)s::float8, count(*)) AS documents,
           coalesce(%(mean_length)s::float8, greatest(avg(words), 1)) AS mean_length
    FROM docs
), occurrences AS MATERIALIZED (
    SELECT d.source, d.seq, d.words, t.number, t.df, (cardinality(u.positions) + 1) / 2 AS tf
    FROM docs AS d
    CROSS JOIN LATERAL unnest(d.hits) AS u (lexeme, positions, weights)
    JOIN terms AS t ON t.term = u.lexeme
    UNION ALL
    SELECT d.source, d.seq, d.words, p.number, p.df, 1
    FROM docs AS d JOIN phrases AS p ON d.hits @@ p.query
), weights AS (
    -- What was just counted is a floor under a lexicon that is behind.
    SELECT o.number, ln(1 + (c.documents - o.df + 0.5) / (o.df + 0.5)) AS idf
    FROM (SELECT number, greatest(max(df), count(*)) AS df FROM occurrences GROUP BY number) AS counted
    CROSS JOIN corpus AS c
    CROSS JOIN LATERAL (SELECT counted.number, least(counted.df, c.documents) AS df) AS o
), texts AS (
    SELECT o.source, o.seq,
           sum(w.idf * o.tf * (%(k1)s::float8 + 1)
               / (o.tf + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * o.words / c.mean_length))) AS bm25
    FROM occurrences AS o JOIN weights AS w ON w.number = o.number CROSS JOIN corpus AS c
    GROUP BY o.source, o.seq
), scored AS (
    SELECT d.source, d.seq, d.at, coalesce(t.bm25, 0) AS bm25, max(t.bm25) OVER () AS best,
           least(1, exp(-%(decay)s::float8 * least(10000, greatest(0, extract(
                        epoch FROM %(now)s::timestamptz - coalesce(d.last_accessed_at, d.at))::float8 / 86400)))
                    * (1 + %(per_access)s::float8 * least(coalesce(d.access_count, 0), %(max_accesses)s::integer)))
               AS temporal
    FROM docs AS d LEFT JOIN texts AS t ON t.source = d.source AND t.seq = d.seq
), ranked AS (
    SELECT source, seq, bm25, best,
           row_number() OVER (ORDER BY (bm25 > 0) DESC,
                              %(text_weight)s::float8 * bm25 / nullif(best, 0) + %(temporal_weight)s::float8 * temporal
                                  DESC NULLS LAST, at DESC, seq DESC) AS place
    FROM scored
)
SELECT source, seq, bm25, best FROM ranked
WHERE (place <= %(kept)s AND bm25 > 0)
   OR (source = 'message' AND seq = ANY (%(extra_messages)s::bigint[]))
   OR (source = 'summary' AND seq = ANY (%(extra_summaries)s::bigint[]))
ORDER BY place
