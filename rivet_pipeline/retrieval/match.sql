-- The rows of one table that the index has not and the selector matches, within the filters, and of them the most promising: the :kept best by
-- an estimate of BM25 and freshness together, and half as many by the estimate alone.
-- Each question is a scan of the text index for one word, so which words a row holds is known without unpacking its
-- tsvector, which costs twenty times as much; how often it holds them is guessed from its length. The scans are fenced,
-- so that they are bitmaps over the text index and not walks by date.
WITH matched AS MATERIALIZED (
    SELECT {alias}.seq, {alias}.id, {at} AS at, {length} AS length, {share} AS share
    FROM {table} AS {alias}
    WHERE {alias}.content_tsv @@ %(selector)s::tsquery
      AND (%(cutoff)s::timestamptz IS NULL OR {at} >= %(cutoff)s::timestamptz)
      AND ({alias}.seq > %(above)s
           OR {alias}.seq = ANY (%(changed)s::bigint[]))
      AND {filter}
    OFFSET 0
), words AS MATERIALIZED (
    SELECT f.seq, sum(t.weight) AS weight
    FROM unnest(%(questions)s::text[], %(weights)s::float8[]) AS t (question, weight)
    CROSS JOIN LATERAL (
        SELECT {alias}.seq FROM {table} AS {alias} WHERE {alias}.content_tsv @@ t.question::tsquery OFFSET 0) AS f
    GROUP BY f.seq
), corpus AS MATERIALIZED (
    SELECT coalesce(%(mean_length)s::float8, greatest(avg(length), 1)) AS mean_length FROM matched
), texts AS MATERIALIZED (
    SELECT d.seq, d.id, d.at, d.share, coalesce(w.weight, 1)
           * g.tf / (g.tf + %(k1)s::float8 * (1 - %(b)s::float8 + %(b)s::float8 * g.length)) AS text
    FROM matched AS d CROSS JOIN corpus AS c LEFT JOIN words AS w ON w.seq = d.seq
    CROSS JOIN LATERAL (SELECT d.length / c.mean_length AS length,
                               greatest(1, %(tf_slope)s::float8 * d.length / c.mean_length) AS tf) AS g
), best AS MATERIALIZED (
    SELECT greatest(max(text), 1e-9) AS text FROM texts
), chosen AS (
    (SELECT seq FROM texts ORDER BY text * share DESC, at DESC, seq DESC LIMIT %(kept)s / 2)
    UNION
    (SELECT t.seq FROM texts AS t CROSS JOIN best LEFT JOIN ros_access AS a ON a.kind = {kind} AND a.id = t.id
     ORDER BY {promise} * t.share DESC, t.at DESC, t.seq DESC
     LIMIT %(kept)s)
)
SELECT (SELECT array_agg(seq) FROM chosen) AS seqs, (SELECT count(*) FROM matched) AS found
