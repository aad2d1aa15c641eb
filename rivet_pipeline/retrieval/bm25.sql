-- BM25 of the given messages and summaries in one list, and the best of them by text and freshness together; the share of
-- the query's words, by weight, that each holds; and for each conversation the BM25 of these rows of it as one text. A
-- summary's key is its negative sequence number.
-- ts_filter leaves of each tsvector only the query's words with their positions, so nothing else is unpacked; lengths
-- are in bytes of text, which are known without unpacking anything.
-- A word stands in a tsvector twice (the text and its split form), hence half the positions are its frequency.
WITH docs AS MATERIALIZED (
    SELECT m.seq AS key, m.conversation_id, m.created_at AS at, octet_length(m.content) + coalesce(octet_length(m.tool_result), 0) AS length,
           ts_filter(setweight(m.content_tsv, 'A', %(lexemes)s::text[]), '{{a}}') AS hits,
           {message_share} AS share, a.access_count, a.last_accessed_at
    FROM ros_messages AS m
    LEFT JOIN ros_access AS a ON a.kind = 'message' AND a.id = m.id
    WHERE m.seq = ANY (%(messages)s::bigint[])
    UNION ALL
    SELECT -s.seq, s.conversation_id, s.latest_at, octet_length(s.content),
           ts_filter(setweight(s.content_tsv, 'A', %(lexemes)s::text[]), '{{a}}'), 1,
           a.access_count, a.last_accessed_at
    FROM ros_summaries AS s
    LEFT JOIN ros_access AS a ON a.kind = 'summary' AND a.id = s.id
    WHERE s.seq = ANY (%(summaries)s::bigint[])
), corpus AS MATERIALIZED (
    SELECT greatest(%(documents)s::float8, count(*)) AS documents,
           coalesce(%(mean_length)s::float8, greatest(avg(length), 1)) AS mean_length,
           (SELECT count(*)::float8 FROM ros_conversations) AS conversations
    FROM docs
), words AS MATERIALIZED (
    SELECT d.key, d.conversation_id, d.length, u.lexeme AS term, (cardinality(u.positions) + 1) / 2 AS tf
    FROM docs AS d CROSS JOIN LATERAL unnest(d.hits) AS u (lexeme, positions, weights)
    UNION ALL
    SELECT d.key, d.conversation_id, d.length, p.query, 1
    FROM docs AS d JOIN unnest(%(phrases)s::text[]) AS p (query) ON d.hits @@ p.query::tsquery
), weights AS MATERIALIZED (
    -- What was just counted is a floor under a lexicon that is behind. Words that only serve a phrase have no weight.
    -- Conversations that hold a word are not counted: they are about as many as if its rows were spread at random.
    SELECT t.term, ln(1 + (c.documents - n.df + 0.5) / (n.df + 0.5)) AS idf,
           ln(1 + (v.conversations - v.df + 0.5) / (v.df + 0.5)) AS session_idf
    FROM unnest(%(terms)s::text[], %(dfs)s::float8[]) AS t (term, df)
    JOIN (SELECT term, count(*) AS found FROM words GROUP BY term) AS f ON f.term = t.term
    CROSS JOIN corpus AS c
    CROSS JOIN LATERAL (SELECT least(greatest(t.df, f.found), c.documents) AS df) AS n
    CROSS JOIN LATERAL (
        SELECT c.conversations, c.conversations * (1 - exp(-n.df / greatest(c.conversations, 1))) AS df) AS v
), texts AS (
    SELECT o.key, sum(w.idf) AS held,
           sum(w.idf * o.tf * (%(k1)s::float8 + 1)
               / (o.tf + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * o.length / c.mean_length))) AS bm25
    FROM words AS o JOIN weights AS w ON w.term = o.term CROSS JOIN corpus AS c
    GROUP BY o.key
), sessions AS (
    SELECT f.conversation_id, sum(w.session_idf * f.tf / (f.tf + %(k1)s::float8)) AS bm25
    FROM (SELECT conversation_id, term, sum(tf) AS tf FROM words WHERE key > 0 GROUP BY conversation_id, term) AS f
    JOIN weights AS w ON w.term = f.term
    GROUP BY f.conversation_id
), scored AS (
    SELECT d.key, d.conversation_id, coalesce(t.held, 0) AS held, d.at, d.share, d.access_count, d.last_accessed_at, coalesce(t.bm25, 0) AS bm25,
           max(t.bm25) OVER () AS best, coalesce(t.bm25 / greatest(max(t.bm25) OVER (), 1e-9), 0) AS text
    FROM docs AS d LEFT JOIN texts AS t ON t.key = d.key
), ranked AS (
    SELECT a.key, a.conversation_id, a.held, a.bm25, a.best,
           row_number() OVER (ORDER BY (a.bm25 > 0) DESC, {promise} * a.share DESC, a.at DESC, a.key DESC) AS place
    FROM scored AS a
)
SELECT r.key, r.bm25, r.best, r.conversation_id, s.bm25 AS session,
       r.held / greatest((SELECT sum(idf) FROM weights), 1e-9) AS coverage
FROM ranked AS r LEFT JOIN sessions AS s ON s.conversation_id = r.conversation_id
WHERE (r.place <= %(kept)s AND r.bm25 > 0) OR r.key = ANY (%(extra)s::bigint[])
ORDER BY r.place
