-- Adds the words of one new piece to the lexicon.
INSERT INTO ros_lexicon AS l (term, df)
SELECT n.term, n.df FROM unnest(%(terms)s::text[], %(counts)s::bigint[]) AS n (term, df)
ORDER BY n.term
ON CONFLICT (term) DO UPDATE SET df = l.df + excluded.df
