-- The rows of one table that hold the query's words, within the filters, and of them the most promising: the :kept best
-- by an estimate of BM25 and freshness together, and half as many by the estimate alone.
-- Each question is a scan of the text index, so which words a row holds is known without unpacking its tsvector, which
-- costs twenty times as much; how often it holds them is guessed from its length. The inner query is fenced, so that it
-- is a bitmap over the text index and not a walk by date.
WITH matched AS MATERIALIZED (
    SELECT f.seq, f.id, f.at, f.length, sum(t.weight) AS weight
    FROM unnest(%(questions)s::text[], %(weights)s::float8[]) AS t (question, weight)
    CROSS JOIN LATERAL (
        SELECT {alias}.seq, {alias}.id, {at} AS at, {length} AS length
        FROM {table} AS {alias}
        WHERE {alias}.content_tsv @@ {question}::tsquery
          AND (%(cutoff)s::timestamptz IS NULL OR {at} >= %(cutoff)s::timestamptz)
          AND {filter}
        OFFSET 0
    ) AS f
    GROUP BY f.seq, f.id, f.at, f.length
), corpus AS MATERIALIZED (
    SELECT coalesce(%(mean_length)s::float8, greatest(avg(length), 1)) AS mean_length FROM matched
), texts AS (
    SELECT d.seq, d.id, d.at,
           d.weight * g.tf / (g.tf + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * g.length)) AS text
    FROM matched AS d CROSS JOIN corpus AS c
    CROSS JOIN LATERAL (SELECT d.length / c.mean_length AS length,
                               greatest(1, %(tf_slope)s::float8 * d.length / c.mean_length) AS tf) AS g
), places AS (
    SELECT t.seq,
           row_number() OVER (ORDER BY t.text DESC, t.at DESC, t.seq DESC) AS by_text,
           row_number() OVER (ORDER BY %(text_weight)s::float8 * t.text / nullif((SELECT max(text) FROM texts), 0)
                                       + %(temporal_weight)s::float8 * {temporal} DESC NULLS LAST,
                                       t.at DESC, t.seq DESC) AS by_both
    FROM texts AS t LEFT JOIN ros_access AS a ON a.kind = {kind} AND a.id = t.id
)
SELECT array_agg(seq) FILTER (WHERE by_both <= %(kept)s OR 2 * by_text <= %(kept)s) AS seqs, count(*) AS found
FROM places
