-- How much each word of a query tells: its inverse document frequency, the rarest of its parts, as a share of that of a
-- word that stands nowhere; NULL for a word that is not indexed at all (and, of, the).
-- The planner must not see the words (hence `asked`): so it makes one plan for all of them.
-- The lexicon is fenced: a plan made while it was small would go through all of it.
WITH asked AS MATERIALIZED (SELECT %(words)s::text[] AS words)
SELECT w.word, (
    SELECT max(ln(1 + (c.documents - n.df + 0.5) / (n.df + 0.5)) / ln(1 + (c.documents + 0.5) / 0.5))
    FROM unnest(ros_query_terms(w.word)) AS t (term)
    LEFT JOIN LATERAL (SELECT o.df FROM ros_lexicon AS o WHERE o.term = t.term OFFSET 0) AS l ON true
    CROSS JOIN LATERAL (SELECT least(coalesce(l.df, 0), c.documents)::float8 AS df) AS n) AS weight
FROM ros_corpus AS c CROSS JOIN unnest((SELECT words FROM asked)) AS w (word)
WHERE c.documents > 0
