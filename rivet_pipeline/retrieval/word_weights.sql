-- How much each word of a query tells: its inverse document frequency, the rarest of its parts, as a share of that of a
-- word that stands nowhere; NULL for a word that is not indexed at all (and, of, the).
-- The planner must not see the words (hence `asked`): so it makes one plan for all of them.
WITH asked AS MATERIALIZED (SELECT %(words)s::text[] AS words)
SELECT w.word, (
    SELECT max(ln(1 + (c.documents - n.df + 0.5) / (n.df + 0.5)) / ln(1 + (c.documents + 0.5) / 0.5))
    FROM unnest(ros_query_terms(w.word)) AS t (term)
    LEFT JOIN ros_lexicon AS l ON l.term = t.term
    CROSS JOIN LATERAL (SELECT least(coalesce(l.df, 0), c.documents)::float8 AS df) AS n) AS weight
FROM ros_corpus AS c CROSS JOIN unnest((SELECT words FROM asked)) AS w (word)
WHERE c.documents > 0
