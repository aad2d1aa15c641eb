-- Which of the given rows hold what is looked for.
SELECT {alias}.seq FROM {table} AS {alias}
CROSS JOIN LATERAL (SELECT {alias}.content, {tool_result} AS tool_result) AS b
WHERE {alias}.seq = ANY (%(seqs)s::bigint[]) AND ({match_content} OR {match_result})
