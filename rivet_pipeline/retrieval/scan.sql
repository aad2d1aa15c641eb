-- A block of one table's rows within the filters, from a place on towards older ones: how many it has, where it ends, and
-- which of its rows hold what is looked for.
WITH block AS MATERIALIZED (
    SELECT {alias}.seq, {at} AS at, {alias}.content, {tool_result} AS tool_result
    FROM {table} AS {alias}
    WHERE {filter}
      AND (%(below_at)s::timestamptz IS NULL
           OR ({at}, {alias}.seq) < (%(below_at)s::timestamptz, %(below_seq)s::bigint))
    ORDER BY {at} DESC, {alias}.seq DESC
    LIMIT %(rows)s
)
SELECT (SELECT count(*) FROM block) AS rows, last.at, last.seq,
       ARRAY(SELECT b.seq FROM block AS b WHERE {match_content} OR {match_result} ORDER BY b.at DESC, b.seq DESC) AS seqs
FROM block AS last ORDER BY last.at, last.seq LIMIT 1
