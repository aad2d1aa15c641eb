-- For each word the known terms that are spelled like it.
SELECT w.place, array_agg(t.term ORDER BY t.term) AS terms
FROM unnest(%(words)s::text[]) WITH ORDINALITY AS w (word, place)
CROSS JOIN LATERAL (
    SELECT l.term FROM ros_lexicon AS l WHERE l.term %% w.word
    ORDER BY similarity(l.term, w.word) DESC, l.term LIMIT %(terms)s
) AS t
GROUP BY w.place ORDER BY w.place
