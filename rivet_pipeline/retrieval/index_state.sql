-- What a search must know before it reads any postings, as of one moment: the query's words, rarest first, and those of
-- its split form; the pieces of the index; the rows that no piece has, or not as they are now; the noise conversations.
-- Words that are in no lexicon are told apart: most of them stand nowhere, and of a pasted page they would take all places.
-- Messages that the process knows already (`KnownMessages`) are not listed again, as far as this `knows` is true of them.
-- Who writes in this transaction (not `settled`) sees rows that others may never see.
-- The planner must not see the values (hence `asked`): as no plan is then better for some of them, it is made once.
-- The lexicon is fenced: a plan made while it was small would go through all of it.
WITH asked AS MATERIALIZED (
    SELECT left(%(query)s::text, 8000) AS query, %(words)s::integer AS words, %(most)s::bigint AS most,
           %(known_database)s::oid AS known_database, %(known_after)s::bigint AS known_after, %(known_to)s::bigint AS known_to
)
SELECT f.folded, w.words, w.uncounted,
       tsvector_to_array(to_tsvector('pg_catalog.english', ros_split(f.folded))) AS parts,
       d.oid AS database, k.holds AS knows, pg_current_xact_id_if_assigned() IS NULL AS settled,
       c.last_message_seq, c.last_summary_seq,
       p.ids AS piece_ids, p.tokens AS piece_tokens, p.sources AS piece_sources,
       ARRAY(SELECT m.seq FROM ros_messages AS m
             WHERE m.seq > CASE WHEN k.holds THEN greatest(c.last_message_seq, a.known_to) ELSE c.last_message_seq END
             ORDER BY m.seq DESC LIMIT (SELECT most FROM asked)) AS new_messages,
       ARRAY(SELECT s.seq FROM ros_summaries AS s WHERE s.seq > c.last_summary_seq ORDER BY s.seq DESC LIMIT (SELECT most FROM asked)) AS new_summaries,
       h.sources AS changed_sources, h.seqs AS changed_seqs, h.changes AS changed_changes,
       ARRAY(SELECT n.number FROM ros_conversations AS n WHERE ros_is_noise(n.session_key, n.settings) ORDER BY n.number) AS noise,
       (SELECT coalesce(max(number), 0) FROM ros_conversations) AS conversations
FROM ros_corpus AS c CROSS JOIN asked AS a CROSS JOIN LATERAL (SELECT ros_fold(a.query) AS folded) AS f
CROSS JOIN (SELECT coalesce((array_agg(t.term ORDER BY l.df, t.term) FILTER (WHERE l.term IS NOT NULL))[1:(SELECT words FROM asked)], '{}') AS words,
                   coalesce(array_agg(t.term ORDER BY t.term) FILTER (WHERE l.term IS NULL), '{}') AS uncounted
            FROM unnest(ros_query_terms((SELECT query FROM asked))) AS t (term)
            LEFT JOIN LATERAL (SELECT * FROM ros_lexicon AS o WHERE o.term = t.term OFFSET 0) AS l ON true) AS w
CROSS JOIN (SELECT oid FROM pg_database WHERE datname = current_database()) AS d
CROSS JOIN LATERAL (SELECT d.oid = a.known_database AND c.last_message_seq >= a.known_after AS holds) AS k
CROSS JOIN (SELECT array_agg(id ORDER BY id) AS ids, array_agg(token::text ORDER BY id) AS tokens,
                   array_agg(source ORDER BY id) AS sources FROM ros_index_pieces) AS p
CROSS JOIN (SELECT array_agg(source ORDER BY source, seq) AS sources, array_agg(seq ORDER BY source, seq) AS seqs,
                   array_agg(change ORDER BY source, seq) AS changes FROM ros_index_changes) AS h
